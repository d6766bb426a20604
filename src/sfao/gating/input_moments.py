"""The second moments of the inputs of a layer, gathered batch by batch, and their principal axes."""

import sys

import torch
from torch import Tensor

#: Moments of inputs with more entries are kept as a sample of the inputs themselves.
WIDEST = 1024
#: Inputs that are looked at in all, of few entries and of more: patches of images number hundreds of thousands.
MOST_NARROW, MOST_WIDE = 2**16, 2**10
#: Synthetic inputs by whose outputs the drift of a layer is measured.
PROBES = 16
#: Second moments smaller than this, relative to the largest, are rounding: up to 1.1e-7 in sums over 65,536 inputs.
SMALLEST_MOMENT = 3e-7
#: The same of products in float64.
SMALLEST_WIDE_MOMENT = 1e-13


class InputMoments:
    """The sum of x x' over the inputs x of a layer, per example; one more input is always 1 where there is a bias."""

    smallest = SMALLEST_MOMENT

    def __init__(self, width: int, has_bias: bool, examples: int) -> None:
        self._width, self._has_bias, self._examples = width, has_bias, examples
        self._moment: Tensor | None = None
        self._rows: list[Tensor] = []
        #: Sums of all inputs with random signs, which have the same second moments, one per row.
        self.probes: Tensor | None = None

    def room(self, examples: int) -> int:
        """Return how many inputs of so many examples are looked at."""
        most = MOST_NARROW if self._width <= WIDEST else MOST_WIDE
        return max(1, most * examples // self._examples)

    def add(self, inputs: Tensor, weight: float, generator: torch.Generator) -> None:
        """Add inputs, one per row, each of which stands for `weight` of them."""
        scaled = self._scale(inputs.float(), weight)
        signs = torch.randint(0, 2, (PROBES, len(scaled)), generator=generator, device="cpu") * 2 - 1
        probes = signs.to(scaled) @ scaled
        self.probes = probes if self.probes is None else self.probes + probes
        if self._width > WIDEST:
            self._rows.append(scaled)
        else:
            self._add_moment(scaled)

    def _scale(self, rows: Tensor, weight: float) -> Tensor:
        """Return the inputs, with the one that is always 1, as they are summed."""
        if self._has_bias:
            rows = torch.cat([rows, rows.new_ones(len(rows), 1)], 1)
        return rows * float((weight / self._examples) ** 0.5)

    def _add_moment(self, rows: Tensor) -> None:
        product = _widen(rows.T @ rows)
        self._moment = product if self._moment is None else self._moment + product

    @property
    def is_finite(self) -> bool:
        held = self._rows if self._moment is None else [self._moment]
        return all(bool(torch.isfinite(tensor).all()) for tensor in held)

    def find_axes(self, before: Tensor) -> tuple[Tensor, Tensor]:
        """Return the moments of these inputs and of others, given as rows R with moments R' R, along their axes.

        The largest first, the axes as rows; in float64 where the device has it.
        """
        if self._moment is not None:
            before = before.to(self._moment)
            values, vectors = torch.linalg.eigh(self._moment + before.T @ before)
            is_there = values > self.smallest * values[-1]
            return values[is_there].flip(0), vectors[:, is_there].flip(1).T
        rows = torch.cat(self._rows)
        rows = _widen(torch.cat([before.to(rows), rows]))
        # R R' has the same eigenvalues as R' R and is the smaller of the two.
        values, vectors = torch.linalg.eigh(rows @ rows.T)
        is_there = values > self.smallest * values[-1]
        values, vectors = values[is_there].flip(0), vectors[:, is_there].flip(1)
        return values, (vectors / values.sqrt()).T @ rows


class AllInputMoments(InputMoments):
    """The same of all inputs, none left out, in float64 where the device has it."""

    smallest = SMALLEST_WIDE_MOMENT

    def room(self, examples: int) -> int:
        return sys.maxsize

    def add(self, inputs: Tensor, weight: float, generator: torch.Generator) -> None:
        self._rows.append(self._scale(_widen(inputs), weight))
        # The inputs themselves while they are fewer than their entries, then the smaller matrix of their moments.
        if self._moment is not None or sum(map(len, self._rows)) > self._width:
            for rows in self._rows:
                self._add_moment(rows)
            self._rows = []


def _widen(matrix: Tensor) -> Tensor:
    return matrix if matrix.device.type == "mps" else matrix.double()
