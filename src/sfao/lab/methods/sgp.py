"""Scaled gradient projection (Saha and Roy 2023): GPM that removes less where past inputs matter less.

Every axis of a layer's input space has an importance l in [0, 1], and that share of the gradient along it is removed:
dW - dW M diag(l) M'. Importances measure how much of a task's inputs lies along an axis, and add up over tasks. Bias,
last layer and other parameters are as in `gpm`.
"""

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from sfao.lab.methods.gpm import grow_basis
from sfao.lab.methods.input_subspace import SubspaceMethod, SubspaceOptions
from sfao.lab.methods.method import MethodOptions, Training
from sfao.lab.methods.search_range import Range, SearchSpace


def measure_importances(lengths: Tensor, scale: float) -> Tensor:
    """Return the importances of axes by the length of the inputs along them: 1 for the longest (equation 5)."""
    return (scale + 1) * lengths / (scale * lengths + lengths.max())


def grow_space(
    basis: Tensor, importances: Tensor, inputs: Tensor, threshold: float, scale: float
) -> tuple[Tensor, Tensor]:
    """Return the basis with the axes that the inputs (columns) need, as in GPM, and the importances of all axes."""
    basis = grow_basis(basis, inputs, threshold)
    found = measure_importances(torch.linalg.vector_norm(basis.T @ inputs, dim=1), scale)
    before = torch.cat([importances, found.new_zeros(len(found) - len(importances))])
    return basis, (before + found).clamp(max=1.0)


def scale_down(rows: Tensor, basis: Tensor, importances: Tensor) -> Tensor:
    """Return rows of a gradient without the share along each axis that is its importance."""
    return rows - (rows @ basis * importances) @ basis.T


class SGPOptions(SubspaceOptions):
    scale: float = Field(
        10.0,
        ge=0,
        description="How quickly an axis becomes as important as the longest; 10 in the authors' Split CIFAR-100.",
    )


class SGP(SubspaceMethod):
    name = "sgp"
    Options = SGPOptions
    options: SGPOptions
    search_space: ClassVar[SearchSpace] = {"threshold": Range(0.8, 0.999), "scale": Range(0.5, 50, log=True)}
    saved: ClassVar[tuple[str, ...]] = (*SubspaceMethod.saved, "importances")

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        super().__init__(model, training, options)
        #: The importance of each column of the basis, by layer.
        self.importances: dict[str, Tensor] = {}

    def project(self, name: str, rows: Tensor) -> Tensor:
        return scale_down(rows, self.bases[name], self.importances[name])

    def store(self, name: str, basis: Tensor, inputs: Tensor, threshold: float) -> None:
        before = self.importances.get(name, basis.new_empty(0)).to(basis)
        basis, importances = grow_space(basis, before, inputs, threshold, self.options.scale)
        self.bases[name], self.importances[name] = basis.float(), importances.float()

    @property
    def memory_bytes(self) -> int:
        return super().memory_bytes + sum(importances.nbytes for importances in self.importances.values())

    def concerns(self) -> list[str]:
        return []  # a basis that spans all inputs leaves the axes of small importance free
