"""Stored examples of past tasks: a fixed number of each task, or a uniform sample of everything seen."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sfao.batches import map_tensors
from sfao.lab.streams.labelled_images import LabelledImages
from sfao.lab.streams.stream import Task


class Examples(NamedTuple):
    """Examples of several tasks, each with the outputs of the model that its loss reads, first and last + 1."""

    inputs: Tensor
    targets: Tensor
    outputs: list[tuple[int, int]]

    def loss(self, model: nn.Module) -> Tensor:
        """Return the mean loss, from one pass through the model: BatchNorm sees the tasks together, as one batch."""
        logits: Tensor = model(self.inputs)
        distinct = sorted(set(self.outputs))
        if len(distinct) == 1:
            return cross_entropy(logits[:, slice(*distinct[0])], self.targets)
        total = logits.new_zeros(())
        for bounds in distinct:
            rows = torch.tensor([row for row, own in enumerate(self.outputs) if own == bounds], device=logits.device)
            total = total + cross_entropy(logits[rows, slice(*bounds)], self.targets[rows], reduction="sum")
        return total / len(self.targets)


class EpisodicMemory:
    """Examples of every past task, as bytes like those of the data set, permuted if the task is.

    All tasks belong to one sequence, hence to one data set with one normalization.
    """

    def __init__(self) -> None:
        self.images = torch.empty(0, dtype=torch.uint8)
        self.labels = torch.empty(0, dtype=torch.int64)
        #: The number of the task of each example, in the order of the tasks.
        self.owners = torch.empty(0, dtype=torch.int64)
        self.outputs: list[tuple[int, int]] = []
        self.mean: tuple[float, ...] = ()
        self.std: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def tasks(self) -> int:
        return len(self.outputs)

    @property
    def bytes(self) -> int:
        return self.images.nbytes + self.labels.nbytes + self.owners.nbytes

    def add(self, task: Task, count: int, generator: torch.Generator) -> None:
        """Store `count` training examples of a task, or all if it has fewer, drawn uniformly."""
        chosen = torch.randperm(len(task.train), generator=generator)[:count]
        images = task.train.images[task.train.indices[chosen]]
        if task.train.permutation is not None:
            images = images.flatten(2)[:, :, task.train.permutation].view_as(images)
        self.images = torch.cat([self.images, images]) if len(self) else images
        self.labels = torch.cat([self.labels, task.train.labels[chosen]])
        self.owners = torch.cat([self.owners, torch.full_like(chosen, self.tasks)])
        self.outputs.append((task.outputs.start, task.outputs.stop))
        self.mean, self.std = task.train.mean, task.train.std

    def draw(self, count: int, generator: torch.Generator, device: torch.device) -> Examples:
        """Return `count` of the examples, uniform over all tasks, without replacement; all when there are fewer."""
        return self._read(torch.randperm(len(self), generator=generator)[:count], device)

    def of_task(self, number: int, device: torch.device) -> Examples:
        """Return all examples of a task, in the order they were added."""
        return self._read((self.owners == number).nonzero().flatten(), device)

    def _read(self, rows: Tensor, device: torch.device) -> Examples:
        chosen = LabelledImages(self.images, rows, self.labels[rows], self.mean, self.std)
        inputs, targets = next(chosen.batches(len(rows), None, device))
        return Examples(inputs, targets, [self.outputs[owner] for owner in self.owners[rows].tolist()])

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(map_tensors(Tensor.cpu, state))


class Reservoir:
    """At most `capacity` examples, a uniform sample of those seen (Vitter 1985); with their logits if given."""

    def __init__(self, capacity: int, generator: torch.Generator) -> None:
        self.capacity, self.generator = capacity, generator
        self.seen = 0
        #: {name: one row per example}: inputs, targets, first and last + 1 of the outputs, and logits.
        self._held: dict[str, Tensor] = {}

    def __len__(self) -> int:
        return min(self.seen, self.capacity)

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self._held.values())

    def add(self, inputs: Tensor, targets: Tensor, outputs: slice, logits: Tensor | None = None) -> None:
        """Offer the examples of a batch, one after the other."""
        bounds = torch.tensor([[outputs.start, outputs.stop]], device=targets.device).expand(len(targets), 2)
        batch = {"inputs": inputs, "targets": targets, "outputs": bounds}
        if logits is not None:
            batch["logits"] = logits
        chosen: dict[int, int] = {}  # {slot: number in the batch}; a later one may take a slot again
        for number in range(len(targets)):
            slot = self.seen
            if slot >= self.capacity:
                slot = int(torch.randint(self.seen + 1, (1,), generator=self.generator))
            if slot < self.capacity:
                chosen[slot] = number
            self.seen += 1
        if not chosen:
            return
        slots, numbers = (torch.tensor(list(part), device=targets.device) for part in (chosen, chosen.values()))
        for name, values in batch.items():
            held = self._held.get(name, values.new_empty(0, *values.shape[1:]))
            if len(self) > len(held):
                held = torch.cat([held, held.new_zeros(len(self) - len(held), *held.shape[1:])])
            held[slots] = values.detach()[numbers]
            self._held[name] = held

    def draw(self, count: int) -> Examples:
        """Return `count` of the examples, uniform, without replacement; all when there are fewer."""
        rows = self._draw(count)
        outputs = [(first, end) for first, end in self._held["outputs"][rows].tolist()]
        return Examples(self._held["inputs"][rows], self._held["targets"][rows], outputs)

    def draw_with_logits(self, count: int) -> tuple[Tensor, Tensor]:
        """Return the inputs of `count` of the examples, and the model's outputs when they were seen."""
        rows = self._draw(count)
        return self._held["inputs"][rows], self._held["logits"][rows]

    def _draw(self, count: int) -> Tensor:
        return torch.randperm(len(self), generator=self.generator)[:count].to(self._held["targets"].device)

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen, "held": dict(self._held), "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        self.seen = state["seen"]
        self._held = {name: values.to(device, copy=True) for name, values in state["held"].items()}
        self.generator.set_state(state["generator"].cpu())
