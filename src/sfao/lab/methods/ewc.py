"""Elastic weight consolidation (Kirkpatrick et al. 2017; online form: Schwarz et al. 2018).

The loss of a task is its cross-entropy plus

    strength / 2  sum over past tasks t  sum_i F_t,i (theta_i - theta*_t,i)^2,

F_t the diagonal of the empirical Fisher information at the end of task t. Avalanche's `ewc_lambda` is half
the strength.
"""

from collections.abc import Iterable
from typing import ClassVar, Literal

import torch
from pydantic import Field

from sfao.lab.methods.fisher import batch_fisher, exact_fisher
from sfao.lab.methods.method import TaskView, first_examples
from sfao.lab.methods.quadratic_penalty import PenalizedMethod, PenaltyOptions
from sfao.lab.methods.search_range import Range, SearchSpace
from sfao.lab.streams.labelled_images import Batch
from sfao.lab.streams.stream import Task


class EWCOptions(PenaltyOptions):
    # From a sweep on validation data: split-mnist, domain, mlp, batch 32, lr 1e-3, no momentum, 2 epochs
    # (1e3 to 3e3 are best there; 1e4 with heavy-ball momentum 0.9).
    strength: float = Field(3e3, ge=0, description="The factor on the penalty.")
    variant: Literal["separate", "online"] = Field(
        "separate",
        description="`separate`: a Fisher and an anchor per task; `online`: one running Fisher with the latest anchor.",
    )
    decay: float = Field(1.0, ge=0, le=1, description="`online`: the factor on the running Fisher after each task.")
    fisher: Literal["exact", "batch"] = Field(
        "exact", description="Squared gradients of examples, or of `batch`es as in Avalanche."
    )
    fisher_samples: int | None = Field(
        None, ge=1, description="Examples of a task to measure the Fisher on, drawn uniformly; null: all."
    )


class EWC(PenalizedMethod):
    """The penalties of separate tasks are kept as their sum, which has the same gradient and minimizer."""

    name = "ewc"
    Options = EWCOptions
    options: EWCOptions
    search_space: ClassVar[SearchSpace] = {"strength": Range(10, 1e6, log=True)}

    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        super().end_task(number, task, generator)
        if self.options.strength == 0:
            return
        weights = [self.options.strength * fisher for fisher in self.measure_fisher(task, generator)]
        if self.options.variant == "separate":
            self.add_penalty(weights)
            return
        past = self.weights or [torch.zeros_like(weight) for weight in weights]
        self.replace_penalty([self.options.decay * old + new for old, new in zip(past, weights, strict=True)])

    def measure_fisher(self, task: Task, generator: torch.Generator) -> list[torch.Tensor]:
        """Return the diagonal of the Fisher information on the training part of a task, one tensor per parameter."""
        measure = exact_fisher if self.options.fisher == "exact" else batch_fisher
        batches: Iterable[Batch] = self.batches(task, generator)
        if self.options.fisher_samples is not None:
            batches = first_examples(batches, self.options.fisher_samples)
        return measure(TaskView(self.model, task.outputs), batches, self.parameters)
