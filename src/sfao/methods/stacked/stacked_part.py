"""A matrix with an input space, of many runs at once: its coordinates along the axes, and its drift."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from sfao.methods.stacked.models import Tensors
from sfao.optim._soft_parts import SMALLEST_COMPARED, Part


@dataclass(frozen=True)
class StackedPart:
    """A matrix of a layer: its parameters by name, and what each run remembers of its inputs."""

    layer: int
    names: list[str]
    #: The place of the axes in the tables of the layer.
    place: slice
    #: (runs x axes x inputs), cut into the columns of each parameter; axes that a run lacks are zero.
    axes: tuple[Tensor, ...]
    #: The importance of each axis (runs x axes), 0 for those that a run lacks.
    importances: Tensor
    #: (runs x probes x inputs), cut likewise, and the answers to them (runs x probes x rows).
    probes: tuple[Tensor, ...]
    answers: Tensor
    #: The length of the answers that a drift is relative to (runs).
    size: Tensor
    #: Which rows past tasks depend on (runs x rows x 1); None for all.
    used_rows: Tensor | None

    def as_matrices(self, tensors: Tensors) -> list[Tensor]:
        """Return the tensors of this part, each as (runs x rows x columns)."""
        runs, _, rows = self.answers.shape
        return [tensors[name].reshape(runs, rows, -1) for name in self.names]

    def measure_coordinates(self, gradients: Tensors) -> Tensor:
        """Return the coordinates of gradients along the axes (runs x rows x axes), without those of free rows."""
        found = sum_products(self.as_matrices(gradients), [along.mT for along in self.axes])
        return found if self.used_rows is None else free_rows(found, self.used_rows)

    def measure_drift(self, parameters: Tensors) -> Tensor:
        """Return how far the answers to the probes have moved in each run, relative to what they were."""
        now = sum_products(self.probes, [matrix.mT for matrix in self.as_matrices(parameters)])
        if self.used_rows is not None:
            now = now * self.used_rows.mT
        moved: Tensor = torch.linalg.vector_norm(now - self.answers, dim=(1, 2), dtype=self.size.dtype)
        return moved / self.size

    def remove(self, gradients: Tensors, coordinates: Tensor, scales: Tensor) -> None:
        """Scale the gradients, and take from them what the coordinates say, in place."""
        for matrix, along in zip(self.as_matrices(gradients), self.axes, strict=True):
            matrix.mul_(scales).baddbmm_(coordinates, along, alpha=-1)


def stack_part(layer: int, names: Sequence[str], parts: Sequence[Part], start: int) -> StackedPart:
    """Return the parts of all runs as one, whose axes begin at `start` of the tables."""
    spaces = [part.space for part in parts]
    for space in spaces:
        space.arrange([0] * len(space.channels_last))  # stacked gradients are contiguous
    most = max(len(space.axes) for space in spaces)
    columns = spaces[0].layout.columns
    axes = torch.stack([pad(space.axes, (0, 0, 0, most - len(space.axes))) for space in spaces])
    importances = torch.stack([pad(space.importances, (0, most - len(space.axes))) for space in spaces])
    is_used_whole = all(space.is_used_whole for space in spaces)
    return StackedPart(
        layer,
        list(names[parts[0].parameters]),
        slice(start, start + most),
        tuple(part.contiguous() for part in axes.split(columns, 2)),
        importances,
        tuple(part.contiguous() for part in torch.stack([space.probes for space in spaces]).split(columns, 2)),
        torch.stack([space.answers for space in spaces]),
        torch.stack([part.size for part in parts]),
        None if is_used_whole else torch.stack([space.used_rows for space in spaces])[:, :, None],
    )


def sum_products(lefts: Sequence[Tensor], rights: Sequence[Tensor]) -> Tensor:
    """Return the sum of A B over pairs of stacks of matrices."""
    total = torch.bmm(lefts[0], rights[0])
    for left, right in zip(lefts[1:], rights[1:], strict=True):
        total.baddbmm_(left, right)
    return total


def free_rows(coordinates: Tensor, used_rows: Tensor) -> Tensor:
    """Take no notice of rows that no past task of a run used, while they alone are learnt."""
    dtype = torch.float32 if coordinates.device.type == "mps" else torch.float64
    in_use = torch.linalg.vector_norm(coordinates * used_rows, dim=(1, 2), dtype=dtype)
    is_compared = in_use > SMALLEST_COMPARED * torch.linalg.vector_norm(coordinates, dim=(1, 2), dtype=dtype)
    noticed: Tensor = used_rows | is_compared[:, None, None]
    return coordinates * noticed
