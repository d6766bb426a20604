"""Which of a task's gradients the layers will hold, decided before any of them is taken."""

from collections.abc import Sequence

import torch

from sfao.gating.eviction import Slots
from sfao.optim.layers import Layer


class Selection:
    """The slots that units take in layers whose choice does not depend on what a gradient looks like.

    Layers whose books are alike share one draw: of fewer units then is a gradient needed. Where `admit_below` or
    `min_norm` looks at the gradient, every unit is wanted.
    """

    def __init__(self, layers: Sequence[Layer], task: int, count: int | None) -> None:
        self._books: list[_Books] = []
        self._of_layer: dict[Layer, _Books] = {}
        for layer in layers:
            if chooses_blindly(layer):
                self._of_layer[layer] = self._shared(layer, task)
        self._wants_all = len(self._of_layer) < len(layers)
        self._survivors: set[int] | None = None
        if count is not None:
            for number in range(count):
                self._enter(number)
            self._survivors = {number for books in self._books for number in books.places.values()}

    def wants(self, number: int) -> bool:
        """Whether a gradient of this unit is needed; to be asked for all units, in order."""
        if self._survivors is None:
            return self._enter(number) or self._wants_all
        return self._wants_all or number in self._survivors

    def slots(self, layer: Layer, numbers: Sequence[int]) -> dict[int, int]:
        """{position: slot} of those of the units that the layer is still to hold, in the order of the slots."""
        positions = {number: position for position, number in enumerate(numbers)}
        places = self._of_layer[layer].places
        return {positions[places[slot]]: slot for slot in sorted(places) if places[slot] in positions}

    def close(self, layer: Layer, written: dict[int, int]) -> None:
        """Settle the books of a layer with what was really written, {slot: number}.

        Units with a gradient of zero were not. What lay in their slots before stays; slots that were new are closed.
        """
        books = self._of_layer[layer]
        memory, slots = layer.memory, books.slots.copy()
        vacant = []
        for slot, number in books.places.items():
            if written.get(slot) == number:
                continue
            if slot in written:
                slots.arrivals[slot] = books.arrival(written[slot])
            elif slot < len(books.before.tasks):
                slots.tasks[slot], slots.arrivals[slot] = books.before.tasks[slot], books.before.arrivals[slot]
            else:
                vacant.append(slot)
        for slot in sorted(vacant, reverse=True):
            last = len(slots.tasks) - 1
            if slot != last:
                memory.move(last, slot)
                slots.tasks[slot], slots.arrivals[slot] = slots.tasks[last], slots.arrivals[last]
            del slots.tasks[last], slots.arrivals[last]
        memory.close(slots)

    def _enter(self, number: int) -> bool:
        taken = [books.enter(number) for books in self._books]
        return any(taken)

    def _shared(self, layer: Layer, task: int) -> "_Books":
        memory, eviction = layer.memory, layer.options["eviction"]
        for books in self._books:
            if (books.before, books.capacity, books.eviction) == (memory.slots, memory.capacity, eviction):
                return books
        self._books.append(_Books(memory.slots, memory.capacity, eviction, memory.generator, task))
        return self._books[-1]


class _Books:
    """The slots of a memory, ahead of what it holds."""

    def __init__(self, slots: Slots, capacity: int, eviction: str, generator: torch.Generator, task: int) -> None:
        self.before, self.slots = slots.copy(), slots.copy()
        self.capacity, self.eviction = capacity, eviction
        self._generator, self._task = generator, task
        #: The unit that takes a slot.
        self.places: dict[int, int] = {}

    def enter(self, number: int) -> bool:
        slot = self.slots.offer(self._task, self.capacity, self.eviction, self._generator)
        if slot is not None:
            self.places[slot] = number
        return slot is not None

    def arrival(self, number: int) -> int:
        return self.before.total_offered + number + 1


def chooses_blindly(layer: Layer) -> bool:
    return bool(layer.options["admit_below"] >= 1 and layer.options["min_norm"] == 0)
