"""Examples of past tasks, stored unchanged, for the methods that may store data."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sfao.lab.streams.labelled_images import LabelledImages
from sfao.lab.streams.stream import Task


class Examples(NamedTuple):
    """Examples of several tasks, each with the outputs of the model that its loss reads."""

    inputs: Tensor
    targets: Tensor
    outputs: list[slice]

    def loss(self, model: nn.Module) -> Tensor:
        """Return the mean loss, from one pass through the model: BatchNorm sees the tasks together, as one batch."""
        logits: Tensor = model(self.inputs)
        bounds = [(head.start, head.stop) for head in self.outputs]
        distinct = sorted(set(bounds))
        if len(distinct) == 1:
            return cross_entropy(logits[:, self.outputs[0]], self.targets)
        total = logits.new_zeros(())
        for start, stop in distinct:
            rows = torch.tensor(
                [place for place, own in enumerate(bounds) if own == (start, stop)], device=logits.device
            )
            total = total + cross_entropy(logits[rows, start:stop], self.targets[rows], reduction="sum")
        return total / len(self.targets)


class EpisodicMemory:
    """Examples of every past task, as bytes like those of the data set, permuted if the task is.

    All tasks are of one stream, hence of one data set with one normalisation.
    """

    def __init__(self) -> None:
        self.images = torch.empty(0, dtype=torch.uint8)
        self.labels = torch.empty(0, dtype=torch.int64)
        #: The number of the task of each example, in the order of the tasks.
        self.owners = torch.empty(0, dtype=torch.int64)
        self.outputs: list[slice] = []
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
        images = _pixels(task.train, chosen)
        self.images = torch.cat([self.images, images]) if len(self) else images
        self.labels = torch.cat([self.labels, task.train.labels[chosen]])
        self.owners = torch.cat([self.owners, torch.full_like(chosen, self.tasks)])
        self.outputs.append(task.outputs)
        self.mean, self.std = task.train.mean, task.train.std

    def draw(self, count: int, generator: torch.Generator, device: torch.device) -> Examples:
        """Return `count` of the examples, uniform over all tasks, without replacement; all when there are fewer."""
        return self._examples(torch.randperm(len(self), generator=generator)[:count], device)

    def of_task(self, number: int, device: torch.device) -> Examples:
        """Return all examples of a task, in the order they were added."""
        return self._examples((self.owners == number).nonzero().flatten(), device)

    def _examples(self, positions: Tensor, device: torch.device) -> Examples:
        chosen = LabelledImages(self.images, positions, self.labels[positions], self.mean, self.std)
        inputs, targets = next(chosen.batches(len(positions), None, device))
        return Examples(inputs, targets, [self.outputs[owner] for owner in self.owners[positions].tolist()])

    def state_dict(self) -> dict[str, Any]:
        return {
            "images": self.images,
            "labels": self.labels,
            "owners": self.owners,
            "outputs": [[head.start, head.stop] for head in self.outputs],
            "mean": list(self.mean),
            "std": list(self.std),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.images, self.labels, self.owners = (state[name].cpu() for name in ("images", "labels", "owners"))
        self.outputs = [slice(start, stop) for start, stop in state["outputs"]]
        self.mean, self.std = tuple(state["mean"]), tuple(state["std"])


def _pixels(part: LabelledImages, chosen: Tensor) -> Tensor:
    """Return copies of some images, permuted if the task is."""
    images = part.images[part.indices[chosen]]
    if part.permutation is None:
        return images
    return images.flatten(2)[:, :, part.permutation].view_as(images)
