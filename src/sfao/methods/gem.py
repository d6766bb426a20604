"""Gradient episodic memory (Lopez-Paz and Ranzato 2017): no step may raise the loss on any past task's examples."""

from collections.abc import Sequence

import numpy as np
import torch
from pydantic import NonNegativeFloat, PositiveInt
from torch import Tensor

from sfao.methods.episodic_method import EpisodicMethod, EpisodicOptions
from sfao.methods.flat_gradient import flat_gradient_of

# Squared singular values of the unit task gradients below this are rounding of their float32.
SMALLEST_EIGENVALUE = 1e-7


def corrected(gradient: Tensor, references: Tensor, margin: float) -> Tensor:
    """The gradient itself if it points against no row of `references`; else gradient + v references.

    v solves the dual problem, min |gradient + v references| over v >= margin. Without a margin this is the
    nearest vector that points against no row; a margin, as in the authors' code, lets it lean towards all of them.
    """
    dots = references @ gradient
    if (dots >= 0).all():
        return gradient
    weights = dual(references @ references.T, dots, margin)
    return gradient + weights.to(references) @ references


def dual(gram: Tensor, dots: Tensor, margin: float) -> Tensor:
    """min over v >= margin of v K v / 2 + c v, as nonnegative least squares, in float64."""
    # Imported here: nothing else of the package needs it before a run has finished.
    from scipy.optimize import nnls

    products, linear = gram.double().cpu().numpy(), dots.double().cpu().numpy()
    # Unit rows, so that a task whose gradient is short is not mistaken for rounding of the others.
    norms = np.sqrt(products.diagonal())
    norms[norms == 0] = 1.0
    products, linear, least = products / np.outer(norms, norms), linear / norms, margin * norms
    # With v = least + w and K = A'A, the objective is |A w - b|^2 / 2 plus a constant, where A'b = -(c + K least).
    values, vectors = np.linalg.eigh(products)
    kept = values > SMALLEST_EIGENVALUE
    roots, vectors = np.sqrt(values[kept]), vectors[:, kept]
    shift, _ = nnls((vectors * roots).T, -(vectors.T @ (linear + products @ least)) / roots)
    return torch.from_numpy((least + shift) / norms)


class GEMOptions(EpisodicOptions):
    #: 256 in the authors' scripts.
    examples: PositiveInt = 256
    #: The least weight of every past task in a corrected step; 0.5 in the authors' scripts ("memory strength").
    margin: NonNegativeFloat = 0.5


class GEM(EpisodicMethod):
    """All stored examples go through the model at every step, one pass a past task."""

    name = "gem"
    Options = GEMOptions
    options: GEMOptions

    def corrected(self, gradient: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        past = (self.memory.of_task(number, self.device) for number in range(self.memory.tasks))
        references = [flat_gradient_of(examples.loss(self.model), parameters) for examples in past]
        return corrected(gradient, torch.stack(references), self.options.margin)
