"""Orthogonal gradient descent (Farajtabar et al. 2019): every step is projected off the directions of past tasks.

Their directions v are orthonormal, of gradients of past logits, and the step is g - sum over v of (v . g) v.
"""

import sys
from itertools import islice
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch.nn.functional import cross_entropy

from sfao.lab.methods.gated_method import GatedMethod
from sfao.lab.methods.method import MethodOptions, TaskView
from sfao.lab.methods.search_range import Choice, Range, SearchSpace
from sfao.lab.streams.stream import Task


class OGDOptions(MethodOptions):
    target: Literal["loss", "logit"] = Field(
        "logit", description="Gradients stored: of the `loss` of batches, or of the true `logit` of examples (OGD-GTL)."
    )
    directions: int | None = Field(
        200, ge=1, description="Directions stored per task, 200 in the paper; null: one per batch or example."
    )
    capacity: int | None = Field(None, ge=1, description="Directions stored in total; null: no limit, as in the paper.")
    eviction: Literal["balanced", "fifo", "reservoir"] = Field(
        "balanced", description="Which direction a new one replaces when `capacity` is reached."
    )
    granularity: Literal["global", "layer"] = Field(
        "global", description="Project the whole model as one vector, as in the paper, or each layer."
    )
    storage: Literal["dense", "factored"] = Field(
        "dense", description="`dense` directions, or `factored` into matrices of low rank."
    )
    rank: int = Field(1, ge=1, description="The rank of factored directions.")


class OGD(GatedMethod):
    """SFAO's gate with the thresholds at their ends: whatever the cosine, project. The first task has no memory."""

    name = "ogd"
    Options = OGDOptions
    options: OGDOptions
    search_space: ClassVar[SearchSpace] = {"target": Choice(("loss", "logit")), "directions": Range(50, 400, log=True)}

    def gate_options(self) -> dict[str, Any]:
        options = self.options
        return {
            "granularity": options.granularity,
            "accept_above": 1.0,
            "discard_below": -1.0,
            # All of the memory: the cosines are by-products of the projection, and nothing is drawn.
            "samples": sys.maxsize,
            "capacity": options.capacity or options.directions or 1,  # grows with what is stored
            "eviction": options.eviction,
            "storage": options.storage,
            "rank": options.rank,
        }

    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        target = self.options.target
        batch_size = 1 if target == "logit" else self.training.batch_size
        available = -(-len(task.train) // batch_size)
        count = min(self.options.directions or available, available)
        if self.options.capacity is None:
            for group in self.gate.param_groups:
                group["capacity"] = self.directions + count
        self.consolidate(
            islice(self.batches(task, generator, batch_size), count),
            cross_entropy if target == "loss" else None,
            model=TaskView(self.model, task.outputs),
            target=target,
            per="batch",
        )
        super().end_task(number, task, generator)

    def concerns(self) -> list[str]:
        found = [
            f"{self.name}: the directions of layer {name!r} span all of it; nothing is left to learn"
            for name in self.spanned_layers()
        ]
        if not any(counts["project"] for counts in self.decisions.values()):
            found.append(f"{self.name}: no step was ever projected")
        return found
