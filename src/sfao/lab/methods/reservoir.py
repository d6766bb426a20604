"""A sample of everything seen so far, of a fixed size, with the same chance for each (Vitter 1985)."""

from typing import Any

import torch
from torch import Tensor

from sfao.lab.methods.episodic_memory import Examples


class Reservoir:
    """At most `capacity` examples as the model was given them, with what it answered where that is told."""

    def __init__(self, capacity: int, generator: torch.Generator) -> None:
        self.capacity, self.generator = capacity, generator
        self.seen = 0
        #: {what: one row an example}: inputs, targets, first and last of the outputs, and logits.
        self._held: dict[str, Tensor] = {}

    def __len__(self) -> int:
        return min(self.seen, self.capacity)

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self._held.values())

    def add(self, inputs: Tensor, targets: Tensor, outputs: slice, logits: Tensor | None = None) -> None:
        """Let the examples of a batch take their chance, one after the other."""
        bounds = torch.tensor([[outputs.start, outputs.stop]], device=targets.device).expand(len(targets), 2)
        batch = {"inputs": inputs, "targets": targets, "outputs": bounds}
        if logits is not None:
            batch["logits"] = logits
        chosen = self._choose(len(targets))
        if not chosen:
            return
        places, numbers = (torch.tensor(list(column), device=targets.device) for column in (chosen, chosen.values()))
        for name, values in batch.items():
            if name not in self._held:
                self._held[name] = values.new_empty(0, *values.shape[1:])
            held = self._held[name]
            if len(self) > len(held):
                held = self._held[name] = torch.cat([held, held.new_zeros(len(self) - len(held), *held.shape[1:])])
            held[places] = values.detach()[numbers]

    def _choose(self, count: int) -> dict[int, int]:
        """Return {place: number in the batch} of those that are kept, and count the batch as seen."""
        chosen: dict[int, int] = {}
        for number in range(count):
            place = self.seen
            if place >= self.capacity:
                place = int(torch.randint(self.seen + 1, (1,), generator=self.generator))
            if place < self.capacity:
                chosen[place] = number  # a later one of the batch may take the place again
            self.seen += 1
        return chosen

    def draw(self, count: int) -> Examples:
        """Return `count` of the examples, uniform, without replacement; all when there are fewer."""
        return self._examples(self._draw(count))

    def draw_with_logits(self, count: int) -> tuple[Tensor, Tensor]:
        """Return the inputs of `count` of the examples, and what the model answered when they were seen."""
        rows = self._draw(count)
        return self._held["inputs"][rows], self._held["logits"][rows]

    def _draw(self, count: int) -> Tensor:
        return torch.randperm(len(self), generator=self.generator)[:count].to(self._held["targets"].device)

    def _examples(self, rows: Tensor) -> Examples:
        bounds = self._held["outputs"][rows].tolist()
        heads = [slice(start, stop) for start, stop in bounds]
        return Examples(self._held["inputs"][rows], self._held["targets"][rows], heads)

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen, "held": dict(self._held), "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        self.seen = state["seen"]
        self._held = {name: values.to(device) for name, values in state["held"].items()}
        self.generator.set_state(state["generator"].cpu())
