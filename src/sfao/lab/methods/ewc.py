"""Elastic weight consolidation (Kirkpatrick et al. 2017; online form: Schwarz et al. 2018)."""

from collections.abc import Iterable, Iterator
from typing import ClassVar, Literal

import torch
from pydantic import Field

from sfao.lab.methods.fisher import batch_fisher, exact_fisher
from sfao.lab.methods.method import TaskView
from sfao.lab.methods.quadratic_penalty import PenalisedMethod, PenaltyOptions
from sfao.lab.methods.search_range import Range, SearchSpace
from sfao.lab.streams.labelled_images import Batch
from sfao.lab.streams.stream import Task


class EWCOptions(PenaltyOptions):
    """strength / 2 * sum F (theta - theta*)^2. Avalanche's `ewc_lambda` lacks the half: it is half the strength."""

    #: From a sweep on validation data: split-mnist, domain, mlp, batch 32, lr 1e-3, no momentum, 2 epochs
    #: (1e3 to 3e3 are best there; 1e4 with heavy-ball momentum 0.9).
    strength: float = Field(3e3, ge=0, allow_inf_nan=False)
    #: One Fisher and one anchor per task, or one running Fisher, decayed, with the latest anchor.
    variant: Literal["separate", "online"] = "separate"
    #: The factor on the running Fisher at the end of every task; for "online".
    decay: float = Field(1.0, ge=0, le=1)
    #: Squared gradients of examples, or of batches as in Avalanche.
    fisher: Literal["exact", "batch"] = "exact"
    #: Examples of a task to measure the Fisher on, drawn uniformly; all by default.
    fisher_samples: int | None = Field(None, ge=1)


class EWC(PenalisedMethod):
    """The penalties of separate tasks are kept as their sum, which has the same gradient and minimiser."""

    name = "ewc"
    Options = EWCOptions
    options: EWCOptions
    search_space: ClassVar[SearchSpace] = {"strength": Range(10, 1e6, log=True)}

    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        super().end_task(number, task, generator)
        if self.options.strength == 0:
            return
        weights = [self.options.strength * fisher for fisher in self.fisher(task, generator)]
        if self.options.variant == "separate":
            self.penalty.add(weights)
            return
        past = self.penalty.weights or [torch.zeros_like(weight) for weight in weights]
        self.penalty.replace([self.options.decay * old + new for old, new in zip(past, weights, strict=True)])

    def fisher(self, task: Task, generator: torch.Generator) -> list[torch.Tensor]:
        """Return the diagonal of the Fisher information on the training part of a task, one tensor per parameter."""
        measure = exact_fisher if self.options.fisher == "exact" else batch_fisher
        batches: Iterable[Batch] = self.batches(task, generator)
        if self.options.fisher_samples is not None:
            batches = first_examples(batches, self.options.fisher_samples)
        return measure(TaskView(self.model, task.outputs), batches, self.parameters)


def first_examples(batches: Iterable[Batch], limit: int) -> Iterator[Batch]:
    """Yield the batches up to `limit` examples."""
    for inputs, targets in batches:
        yield inputs[:limit], targets[:limit]
        limit -= len(inputs)
        if limit <= 0:
            return
