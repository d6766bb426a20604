"""The looking side of a memory: inner products with and among its directions, and the projections made of them.

Products among directions are kept in float64 and computed anew only where slots have changed.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from sfao.gating._block import ALL, Block, Matrices
from sfao.gating._layout import Layout
from sfao.gating.eviction import Slots
from sfao.gating.projection import PROJECTIONS, Projection, Span

# What rounding may leave of a stored direction in the projected gradient, relative to its norm.
ORTHOGONALITY = 5e-6
# Sets of active parameters to keep products for.
MAX_PATTERNS = 16
# Multiplications that take no longer than the few calls around them.
SMALL_WORK = 2**20


T = TypeVar("T")
Active = tuple[bool, ...]
#: Sums what is measured of rows over all who hold some.
Sum = Callable[[Tensor], Tensor]


def keep_sum(measured: Tensor) -> Tensor:
    """Return the sum over one who holds all rows."""
    return measured


def by_block(blocks: Sequence[Block], values: Sequence[T]) -> Iterator[tuple[Block, Sequence[T]]]:
    """Yield each block with the values, one per parameter, of the parameters that it holds."""
    start = 0
    for block in blocks:
        end = start + len(block.layout.columns)
        yield block, values[start:end]
        start = end


class Products:
    """Inner products with the directions of some blocks.

    Gradients come as matrices, one per parameter, None for parameters without one. The memory that owns the blocks
    notes which slots it has `changed`, and calls `forget` when all of them have.
    """

    def __init__(self, blocks: list[Block]) -> None:
        self.blocks = blocks
        #: Sums what is measured of rows over all who hold some: nobody else, unless `share` said so.
        self._sum: Sum = keep_sum
        #: The numbers of entries of all parameters, where others hold some of them.
        self._sizes: Sequence[int] | None = None
        #: Slots that have changed since the products among directions were last brought up to date.
        self.changed: set[int] = set()
        #: By which parameters are active: with one head per task, a few patterns take turns.
        self.patterns: dict[Active, PatternProducts] = {}
        self.projections: dict[tuple[str, Active], Projection] = {}

    @property
    def count(self) -> int:
        return self.blocks[0].count if self.blocks else 0

    @property
    def layouts(self) -> list[Layout]:
        return [block.layout for block in self.blocks]

    @property
    def size(self) -> int:
        """The number of parameters."""
        return sum(block.layout.size for block in self.blocks)

    @property
    def bytes(self) -> int:
        """Bytes of what is kept: Gram matrices, in float64, and their factors."""
        kept = [pattern.bytes for pattern in self.patterns.values()]
        return sum(kept) + sum(projection.bytes for projection in self.projections.values())

    # -- Comparing -------------------------------------------------------------------------------------

    @property
    def is_small(self) -> bool:
        """True if all inner products cost no more than those of a sample: the calls cost more than the work."""
        return self.count * self.size <= SMALL_WORK

    def share(self, sum_: Sum, sizes: Sequence[int]) -> None:
        """Be the products of rows of parameters of these sizes, summed by `sum_` over all who hold some."""
        self._sum, self._sizes = sum_, sizes

    def dots(self, gradients: Matrices, index: Tensor | slice = ALL) -> Tensor:
        """Return inner products with the directions of `index`, or with all of them, in float64."""
        return self._sum(self.own_dots(gradients, index))

    def own_dots(self, gradients: Matrices, index: Tensor | slice = ALL) -> Tensor:
        """Return the same of the rows that are held here."""
        parts = [block.dots(part, index) for block, part in self._with_gradients(gradients)]
        return (torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]).double()

    def inverse_norms(self, gradients: Matrices) -> Tensor:
        """Return 1 / |b| of the directions b over the parameters that have a gradient; 0 where that norm is 0."""
        return self._pattern(_find_active(gradients)).inverse_norms(self.blocks, self._sum)

    def extreme_cosines(
        self, gradients: Matrices, norm: float, dots: Tensor, index: Tensor | slice, kind: str
    ) -> tuple[float, float]:
        """Return the largest and the smallest cosine with the directions of `index`, given the inner products.

        Directions that are zero in the active parameters have no cosine and constrain nothing.
        """
        pattern = self._pattern(_find_active(gradients))
        inverse_norms = pattern.inverse_norms(self.blocks, self._sum)[index]
        if pattern.has_zero:
            dots, inverse_norms = dots[inverse_norms > 0], inverse_norms[inverse_norms > 0]
        return extreme_cosines(dots, inverse_norms, norm, kind)

    def largest_cosine(self, gradients: Matrices, norm: float) -> float:
        return self.extreme_cosines(gradients, norm, self.dots(gradients), ALL, "signed")[0]

    def risk(self, update: Matrices) -> float:
        """Return the interference risk R(u; B), the largest (-<b, u>)_+ over the unit directions b (equation 2)."""
        return float((-self.dots(update) * self.inverse_norms(update)).max().clamp(min=0))

    # -- Projecting ------------------------------------------------------------------------------------

    def project_(self, gradients: Matrices, norm: float, kind: str, slots: Slots, dots: Tensor | None = None) -> None:
        """Project the gradients, of this norm and these inner products if known, off the directions, in place.

        Rounding is as large as the weights. Where that is not small against what is left of the gradient
        (directions nearly dependent, gradient nearly inside their span), the work is done in float64.
        """
        projection = self.projection(gradients, kind, slots)
        present = [gradient for gradient in gradients if gradient is not None]
        if projection.rank >= self._count_entries(gradients):
            for gradient in present:
                gradient.zero_()
            return
        dots = self.dots(gradients) if dots is None else dots
        weights = projection.weights(dots)
        if projection.is_orthogonal and _bound_rounding(present[0].dtype, norm, dots, weights) > ORTHOGONALITY:
            wide = [None if gradient is None else gradient.double() for gradient in gradients]
            self._subtract_(wide, projection.weights(self.dots(wide)))
            for gradient, exact in zip(present, (matrix for matrix in wide if matrix is not None), strict=True):
                gradient.copy_(exact)
        else:
            self._subtract_(gradients, weights)

    def projection(self, gradients: Matrices, kind: str, slots: Slots) -> Projection:
        """Return the projection, factored anew only when directions or active parameters have changed."""
        key = (kind, _find_active(gradients))
        pattern = self._pattern(key[1])
        if key not in self.projections:
            self.projections[key] = PROJECTIONS[kind](pattern.gram(self.blocks, self._sum), slots.arrivals)
        return self.projections[key]

    @property
    def spans_everything(self) -> bool:
        """True if no direction at all is left: every gradient would be projected to zero."""
        if self.count < max(self.size, 1):
            return False
        active = (True,) * sum(len(block.layout.columns) for block in self.blocks)
        # Products of its own: looking must not change what the next step computes, not even in the last bit.
        return Span(PatternProducts(active, self.count).gram(self.blocks, self._sum)).rank >= self.size

    def _subtract_(self, gradients: Matrices, weights: Tensor) -> None:
        for block, part in self._with_gradients(gradients):
            block.subtract_(part, weights)

    def _count_entries(self, gradients: Matrices) -> int:
        sizes = self._sizes or [0 if gradient is None else gradient.numel() for gradient in gradients]
        return sum(size for size, gradient in zip(sizes, gradients, strict=True) if gradient is not None)

    def _with_gradients(self, gradients: Matrices) -> list[tuple[Block, Matrices]]:
        return [
            (block, part)
            for block, part in by_block(self.blocks, gradients)
            if any(gradient is not None for gradient in part)
        ]

    # -- Keeping ---------------------------------------------------------------------------------------

    def _pattern(self, active: Active) -> "PatternProducts":
        if self.changed:
            self.note_changes()
        if active not in self.patterns:
            if len(self.patterns) >= MAX_PATTERNS:
                self.forget()
            self.patterns[active] = PatternProducts(active, self.count)
        return self.patterns[active]

    def note_changes(self) -> None:
        """Know which products are stale since slots have changed."""
        # A slot may have been written and given up again.
        changed = {slot for slot in self.changed if slot < self.count}
        for pattern in self.patterns.values():
            pattern.stale_norms |= changed
            pattern.stale_gram |= changed
        self.projections.clear()
        self.changed.clear()

    def forget(self) -> None:
        """Compute everything anew when it is next needed."""
        # One statement: an interrupt must not leave projections of directions that have changed.
        self.patterns, self.projections, self.changed = {}, {}, set()


class PatternProducts:
    """Norms and Gram matrix of the directions of some blocks, over the parameters that are active."""

    def __init__(self, active: Active, count: int) -> None:
        self.active = active
        #: True if some direction is zero in the active parameters.
        self.has_zero = False
        self.stale_norms = set(range(count))
        self.stale_gram = set(range(count))
        self.kept_norms = torch.empty(0, dtype=torch.float64, device="cpu")
        self.kept_gram = torch.empty(0, 0, dtype=torch.float64, device="cpu")

    @property
    def bytes(self) -> int:
        return self.kept_norms.nbytes + self.kept_gram.nbytes

    def inverse_norms(self, blocks: Sequence[Block], sum_: Sum = keep_sum) -> Tensor:
        """Return 1 / |b|, and 0 for a direction that is zero in the active parameters: it constrains nothing."""
        if self.stale_norms:
            slots = _index(self.stale_norms, blocks)
            squares = torch.stack([block.squares(slots, part) for block, part in by_block(blocks, self.active)]).sum(0)
            squares = sum_(squares)
            self.kept_norms = _resize(self.kept_norms.to(slots.device), blocks[0].count)
            self.kept_norms[slots] = torch.where(squares > 0, squares.rsqrt(), 0.0)
            self.has_zero = bool((self.kept_norms == 0).any())
            self.stale_norms.clear()
        return self.kept_norms

    def gram(self, blocks: Sequence[Block], sum_: Sum = keep_sum) -> Tensor:
        if self.stale_gram:
            slots = _index(self.stale_gram, blocks)
            rows = torch.stack([block.gram(slots, part) for block, part in by_block(blocks, self.active)]).sum(0)
            rows = sum_(rows)
            self.kept_gram = _resize(self.kept_gram.to(slots.device), blocks[0].count)
            self.kept_gram[slots] = rows
            self.kept_gram[:, slots] = rows.T
            self.stale_gram.clear()
        return self.kept_gram


def extreme_cosines(dots: Tensor, inverse_norms: Tensor, norm: float, kind: str) -> tuple[float, float]:
    """Return the largest cosine, signed or absolute, and the smallest signed one.

    From inner products of a gradient of this norm with directions of these norms. Rounding can push the
    quotient past 1, where no threshold may see it. With no direction at all, everything agrees.
    """
    if len(dots) == 0:
        return 1.0, 1.0
    least, most = torch.aminmax(dots * inverse_norms)
    smallest = min(max(float(least) / norm, -1.0), 1.0)
    largest = min(max(float(most) / norm, -1.0), 1.0)
    return (max(largest, -smallest) if kind == "absolute" else largest), smallest


def _bound_rounding(dtype: torch.dtype, norm: float, dots: Tensor, weights: Tensor) -> float:
    """Return what rounding can leave along a unit direction, relative to the norm of the projected gradient."""
    if dtype == torch.float64:
        return 0.0
    left = max(norm**2 - float(dots @ weights), 0.0) ** 0.5
    size = norm + float(weights.abs().sum())
    return torch.finfo(dtype).eps * size / left if left > 0 else float("inf")


def _find_active(gradients: Matrices) -> Active:
    return tuple(gradient is not None for gradient in gradients)


def _index(slots: set[int], blocks: Sequence[Block]) -> Tensor:
    return torch.tensor(sorted(slots), device=blocks[0].tensors[0].device)


def _resize(old: Tensor, count: int) -> Tensor:
    new = old.new_zeros((count,) * old.ndim)
    corner = (slice(min(len(old), count)),) * old.ndim
    new[corner] = old[corner]
    return new
