"""Gradient episodic memory (Lopez-Paz and Ranzato 2017): no step may raise the loss on any past task's examples.

With g the gradient and the rows of G those of past tasks' examples, g + v G replaces g where any of G g is negative;
v minimizes |g + v G| over v >= margin.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from sfao.lab.methods.episodic_method import EpisodicMethod, EpisodicOptions, flat_gradient
from sfao.lab.methods.search_range import Range, SearchSpace
from sfao.projection import minimize_nonnegative

# Squared singular values of the unit task gradients below this are rounding of their float32.
SMALLEST_EIGENVALUE = 1e-7


def correct(gradient: Tensor, references: Tensor, margin: float) -> Tensor:
    """Return the gradient itself if it points against no row of `references`, else gradient + v references.

    v solves the dual problem, min |gradient + v references| over v >= margin. Without a margin this is the
    nearest vector that points against no row; a margin, as in the authors' code, lets it lean towards all of them.
    """
    dots = references @ gradient
    if (dots >= 0).all():
        return gradient
    weights = solve_dual(references @ references.T, dots, margin)
    return gradient + weights.to(references) @ references


def solve_dual(gram: Tensor, dots: Tensor, margin: float) -> Tensor:
    """Return the v >= margin that minimizes v K v / 2 + c v, in float64 on the CPU."""
    gram, dots = gram.double().cpu(), dots.double().cpu()
    # Unit rows, so that a task whose gradient is short is not mistaken for rounding of the others.
    norms = gram.diagonal().sqrt()
    norms = norms.where(norms > 0, 1.0)
    unit, least = gram / norms / norms[:, None], margin * norms
    values, vectors = torch.linalg.eigh(unit)
    if values[0] < SMALLEST_EIGENVALUE:
        unit = vectors * values.clamp(min=SMALLEST_EIGENVALUE) @ vectors.T
    # With v = least + w the objective is w K w / 2 + (c + K least) w plus a constant.
    return (least + minimize_nonnegative(unit, dots / norms + unit @ least)) / norms


class GEMOptions(EpisodicOptions):
    examples: int = Field(256, ge=1, description="Examples stored per task; 256 in the authors' scripts.")
    margin: float = Field(
        0.5, ge=0, description="The least weight of each past task in a corrected step; 0.5 in the authors' scripts."
    )


class GEM(EpisodicMethod):
    """All stored examples pass through the model at every step, in one pass per past task."""

    name = "gem"
    Options = GEMOptions
    options: GEMOptions
    search_space: ClassVar[SearchSpace] = {"examples": Range(50, 500, log=True), "margin": Range(0, 1)}

    def correct(self, gradient: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        past = (self.memory.of_task(number, self.device) for number in range(self.memory.tasks))
        references = [flat_gradient(examples.loss(self.model), parameters) for examples in past]
        return correct(gradient, torch.stack(references), self.options.margin)
