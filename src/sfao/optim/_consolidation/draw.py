"""The draw among a task's units: which gradients the layers will hold, decided before any of them is taken."""

from collections.abc import Sequence

import torch

from sfao.gating.eviction import Slots
from sfao.optim.layers import Layer


class Draw:
    """The slots that units take in layers whose choice does not depend on what a gradient looks like.

    Layers of one history share one draw: gradients of fewer units are then needed. Where `admit_below` or
    `min_norm` looks at the gradient, every unit is wanted.
    """

    def __init__(self, layers: Sequence[Layer], task: int, count: int | None) -> None:
        self._draws: list[_SlotDraw] = []
        self._of_layer: dict[Layer, _SlotDraw] = {}
        for layer in layers:
            if draws_blindly(layer):
                self._of_layer[layer] = self._find_draw(layer, task)
        self._wants_all = len(self._of_layer) < len(layers)
        self._survivors: set[int] | None = None
        if count is not None:
            for number in range(count):
                self._enter(number)
            self._survivors = {number for drawn in self._draws for number in drawn.places.values()}

    def is_wanted(self, number: int) -> bool:
        """Tell whether a gradient of this unit is needed; to be asked about all units, in order."""
        if self._survivors is None:
            return self._enter(number) or self._wants_all
        return self._wants_all or number in self._survivors

    def slots(self, layer: Layer, numbers: Sequence[int]) -> dict[int, int]:
        """Return {position: slot} of those of the units that the layer is still to hold, in the order of the slots."""
        positions = {number: position for position, number in enumerate(numbers)}
        places = self._of_layer[layer].places
        return {positions[places[slot]]: slot for slot in sorted(places) if places[slot] in positions}

    def close(self, layer: Layer, stored: dict[int, int]) -> None:
        """Let the memory of a layer hold what was really stored, {slot: number}.

        Units with a gradient of zero were not. Directions that lay in their slots stay; slots that were new are closed.
        """
        drawn = self._of_layer[layer]
        memory, slots = layer.memory, drawn.slots.copy()
        vacant = []
        for slot, number in drawn.places.items():
            if stored.get(slot) == number:
                continue
            if slot in stored:
                slots.arrivals[slot] = drawn.arrival(stored[slot])
            elif slot < len(drawn.before.tasks):
                slots.tasks[slot], slots.arrivals[slot] = drawn.before.tasks[slot], drawn.before.arrivals[slot]
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
        taken = [drawn.enter(number) for drawn in self._draws]
        return any(taken)

    def _find_draw(self, layer: Layer, task: int) -> "_SlotDraw":
        memory, eviction = layer.memory, layer.options["eviction"]
        for drawn in self._draws:
            if (drawn.before, drawn.capacity, drawn.eviction) == (memory.slots, memory.capacity, eviction):
                return drawn
        self._draws.append(_SlotDraw(memory.slots, memory.capacity, eviction, memory.generator, task))
        return self._draws[-1]


class _SlotDraw:
    """The slots that units take in memories of one history, ahead of what they hold."""

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


def draws_blindly(layer: Layer) -> bool:
    """Tell whether the layer stores a gradient whatever it looks like."""
    return bool(layer.options["admit_below"] >= 1 and layer.options["min_norm"] == 0)
