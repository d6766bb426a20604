"""Orthogonal gradient descent (Farajtabar et al. 2019): every step is projected off the directions of past tasks."""

import sys
from collections.abc import Callable
from itertools import islice
from typing import ClassVar, Literal

import torch
from pydantic import PositiveInt
from torch import Tensor
from torch.nn.functional import cross_entropy

from sfao.lab.methods.gated_method import GatedMethod, leave_warnings_to_concerns
from sfao.lab.methods.method import MethodOptions
from sfao.lab.methods.search_range import Choice, Range, SearchSpace
from sfao.lab.methods.task_view import TaskView
from sfao.lab.streams.stream import Task
from sfao.optimizer import SFAO


def average_logit(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs.mean()


#: What a stored direction is the gradient of, None for the true logit, and whether of a batch or of a single example.
TARGETS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor] | None, str]] = {
    "loss": (cross_entropy, "batch"),
    "logit": (None, "example"),
    "average": (average_logit, "example"),
}


class OGDOptions(MethodOptions):
    #: `loss` of a batch; `logit` of the true class of an example (OGD-GTL); `average` of its logits (OGD-AVE), which
    #: protects little on a shared head: cross-entropy pushes logits apart and leaves their average where it was.
    target: Literal["loss", "logit", "average"] = "logit"
    #: How many are taken from each task; the paper takes 200. Null: one for every batch, or every example.
    directions: PositiveInt | None = 200
    #: How many are held in all; without it the memory grows with every task, as in the paper.
    capacity: PositiveInt | None = None
    eviction: Literal["balanced", "fifo", "reservoir"] = "balanced"
    #: The paper projects the whole model as one vector.
    granularity: Literal["global", "layer"] = "global"
    storage: Literal["dense", "factored"] = "dense"
    rank: PositiveInt = 1


class OGD(GatedMethod):
    """SFAO's gate with the thresholds at their ends: whatever the cosine, project. The first task meets no memory."""

    name = "ogd"
    Options = OGDOptions
    options: OGDOptions
    search_space: ClassVar[SearchSpace] = {"target": Choice(("loss", "logit")), "directions": Range(50, 400, log=True)}

    def make_optimizer(self) -> SFAO:
        options = self.options
        return SFAO(
            self.model,
            **self.descent(),
            seed=self.training.seed,
            granularity=options.granularity,
            accept_above=1.0,
            discard_below=-1.0,
            # All of the memory, always: the cosines are by-products of the projection, and nothing is drawn.
            samples=sys.maxsize,
            capacity=options.capacity or options.directions or 1,  # grows with what is stored
            eviction=options.eviction,
            storage=options.storage,
            rank=options.rank,
        )

    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        objective, per = TARGETS[self.options.target]
        batch_size = 1 if per == "example" else self.training.batch_size
        there = -(-len(task.train) // batch_size)
        count = min(self.options.directions or there, there)
        if self.options.capacity is None:
            for group in self.optimizer.param_groups:
                group["capacity"] = self.directions + count
        with leave_warnings_to_concerns():
            self.optimizer.consolidate(
                islice(self.batches(task, generator, batch_size), count),
                objective,
                model=TaskView(self.model, task.outputs),
                target="loss" if objective else "logit",
                per="batch",
            )

    def concerns(self) -> list[str]:
        found = []
        if not any(counts["project"] for counts in self.decisions.values()):
            found.append(f"{self.name}: no step was ever projected; every update equalled SGD's")
        found += [
            f"{self.name}: the directions of layer {name!r} span all of it; nothing is left to learn"
            for name in self.find_spanned()
        ]
        return found
