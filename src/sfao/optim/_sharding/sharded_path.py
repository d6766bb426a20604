"""The gate over shards: each rank measures its rows, sums are taken over all of them, and all decide alike."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from sfao.gating.decision import Decision
from sfao.optim._gate_path import PathHistory, Report
from sfao.optim._host_path import HostPath, LayerGradient, check_finite, judge
from sfao.optim._sharding.gathering import Gathering, describe
from sfao.optim._sharding.rows import TakenRows, give_back, take_rows
from sfao.optim._sharding.sharded_softening import ShardedSoftening, pack, unpack
from sfao.optim._sharding.shards import Shards, find_dim, is_sharded
from sfao.optim._softening import Measured, Softening
from sfao.optim.layers import Layer

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

T = TypeVar("T")

#: The variance, relative to the squared mean, from which squared lengths of one gradient on all ranks are others.
UNLIKE = 1e-6


class RowsGradient(LayerGradient):
    """This rank's rows of a layer's gradients, with what is known of all of them."""

    dots: Tensor | None = None

    def forget(self) -> None:
        """Forget what is known: the gradients have changed."""
        for name in ("norm", "_scale"):
            self.__dict__.pop(name, None)
        self.dots = None


class ShardedPath(HostPath):
    """Gates layers that ranks hold in shards; see :class:`sfao.optim._gate_path.Path`.

    A step takes two collectives, whatever the number of layers: memories' input sides are brought together, and what
    was measured is summed. Four, where parameters are cut along their columns; one more where a layer has directions
    beside its input space, or rows that no task has used.
    """

    def __init__(self, layers: list[Layer], shards: Shards, history: PathHistory, report: Report | None = None) -> None:
        super().__init__(layers, history, report)
        self._shards = shards
        self._gathering: Gathering | None = None

    def serves(self) -> bool:
        return True

    @property
    def gathering(self) -> Gathering:
        """What brings the memories' input sides together, as they are now."""
        if self._gathering is None or self._gathering.made_for != describe(self._layers):
            self._gathering = Gathering(self._layers, self._shards)
        return self._gathering

    def make_softening(self) -> ShardedSoftening:
        return ShardedSoftening(self._layers, self._shards, self.gathering)

    def work_whole(self, work: Callable[[], T]) -> T:
        return self.gathering.work_whole(work)

    def step(self, softening: Softening | None) -> None:
        found, taken = read_rows(self._layers, self._shards)
        rows = dict(zip(taken.parameters, taken.rows, strict=True))

        def gate() -> None:
            softened = self._measure_and_soften(found, softening, rows.get, measure_whole(taken))
            changed = {layer: gradient for layer, gradient in found if layer in softened and len(layer.memory)}
            if changed:
                self._sum_again(changed)
            for layer, gradient in found:
                self._count(layer, *gate_rows(layer, gradient))

        self.gathering.work_whole(gate)
        if softening is not None and softening.layers:
            self.note(softening)
        give_back(taken, self._shards)

    def _measure_and_soften(
        self,
        found: list[tuple[Layer, RowsGradient]],
        softening: Softening | None,
        read: Callable[[Tensor], Tensor | None],
        whole: Tensor,
    ) -> set[Layer]:
        """Sum what ranks measure, tell the gradients, and soften; return the layers that were softened."""
        measured: Measured | None = None
        if softening is not None and softening.layers:
            measured = softening.measure(read)
        softened = set() if measured is None or softening is None else set(softening.layers)
        local = [measure_rows(layer, gradient, layer not in softened) for layer, gradient in found]
        parts = [whole, *local, *([] if measured is None else [pack(measured).to(torch.float64)])]
        of_whole, *summed = self._sum(parts)
        tell(found, summed[: len(found)])
        self._report = Report(norms={layer.name: gradient.norm for layer, gradient in found})
        for layer, gradient in found:
            check_finite(layer, gradient)
        check_reduced(of_whole, self._shards.size)
        if measured is not None and softening is not None:
            softening.finish(measured, *unpack(summed[-1].to(measured.energies.dtype), measured))
        return softened

    def _sum_again(self, found: dict[Layer, RowsGradient]) -> None:
        """Sum what ranks measure of gradients that were softened."""
        for gradient in found.values():
            gradient.forget()
        pairs = list(found.items())
        tell(pairs, self._sum([measure_rows(layer, gradient, True) for layer, gradient in pairs]))

    def _sum(self, parts: Sequence[Tensor]) -> Sequence[Tensor]:
        device = self._layers[0].parameters[0].device
        together = torch.cat([part.to(device) for part in parts]) if parts else torch.zeros(0, device=device)
        return list(self._shards.total(together).split([len(part) for part in parts]))


def read_rows(layers: Sequence[Layer], shards: Shards) -> tuple[list[tuple[Layer, RowsGradient]], TakenRows]:
    """Return this rank's rows of the gradients of layers that have some."""
    for layer in layers:
        for parameter in layer.parameters:
            _align_gradient(parameter)
    parameters = [parameter for layer in layers for parameter in layer.parameters]
    taken = take_rows(parameters, [parameter.grad for parameter in parameters], shards)
    rows = iter(taken.rows)
    found: list[tuple[Layer, RowsGradient]] = []
    for layer in layers:
        own = [next(rows) for _ in layer.parameters]
        if any(gradient is not None for gradient in own):
            found.append((layer, RowsGradient(own, layer.memory.products.layouts)))
    return found, taken


def measure_whole(taken: TakenRows) -> Tensor:
    """Return the squared length of gradients that every rank has whole, and its square, to be summed over ranks."""
    pairs = zip(taken.parameters, taken.local, strict=True)
    whole = [own for parameter, own in pairs if own is not None and find_dim(parameter) is None]
    lengths = [torch.linalg.vector_norm(gradient, dtype=torch.float64) for gradient in whole]
    if not lengths:
        return torch.zeros(2, dtype=torch.float64, device=taken.parameters[0].device)
    square = torch.stack(lengths).square().sum()
    return torch.stack([square, square.square()])


def check_reduced(summed: Tensor, ranks: int) -> None:
    """Raise a RuntimeError if the gradients that ranks have whole are not the same on all of them.

    Each rank works on its rows of them: the rows of one gradient, not of several.
    """
    mean, mean_square = (summed / ranks).tolist()
    if mean_square - mean**2 > UNLIKE * mean**2:
        raise RuntimeError(
            "gradients of parameters that every rank holds whole must be the same on all ranks, but are not: shard "
            "these layers too, or average their gradients before step()"
        )


def find_sharded_updates(layers: Sequence[Layer]) -> list[tuple[Layer, RowsGradient]]:
    """Return this rank's rows of the gradients, or of the updates that a step left, which know the norms of all."""
    shards = layers[0].shards
    assert shards is not None
    found, _ = read_rows(layers, shards)
    if found:
        squares = [measure_rows(layer, gradient, False) for layer, gradient in found]
        tell(found, shards.total(torch.cat(squares)).split(1))
    for layer, gradient in found:
        check_finite(layer, gradient)
    return found


def _align_gradient(parameter: Tensor) -> None:
    """Let a gradient be cut as its parameter is: that of a whole one may come as a sum that is still to be taken."""
    gradient = parameter.grad
    if gradient is not None and is_sharded(gradient):
        sharded: DTensor = gradient  # type: ignore[assignment]
        placements = parameter.placements  # type: ignore[attr-defined]
        if sharded.placements != placements:
            parameter.grad = sharded.redistribute(placements=placements)


def measure_rows(layer: Layer, gradient: LayerGradient, with_dots: bool) -> Tensor:
    """Return the squared length of a rank's rows, and their inner products with all directions, to be summed."""
    device = layer.parameters[0].device
    square = torch.zeros((), dtype=torch.float64, device=device)
    for tensor in gradient.present:
        square += torch.linalg.vector_norm(tensor, dtype=torch.float64).square()
    count = layer.memory.products.count if with_dots else 0
    if not count:
        return square[None]
    dots = layer.memory.products.own_dots(gradient.own_matrices())
    return torch.cat([square[None], dots.to(device)])


def tell(found: Sequence[tuple[Layer, RowsGradient]], summed: Sequence[Tensor]) -> None:
    """Let gradients know the norm and the inner products of all their rows."""
    norms = torch.stack([total[0] for total in summed]).sqrt().tolist() if summed else []
    for (_, gradient), total, norm in zip(found, summed, norms, strict=True):
        gradient.__dict__["norm"] = norm
        gradient.dots = total[1:] if len(total) > 1 else None


def gate_rows(layer: Layer, gradient: RowsGradient) -> tuple[Decision | None, float | None]:
    """Decide on a gradient by what is known of all its rows, and make this rank's the update."""
    if gradient.norm == 0:
        return None, None
    memory = layer.memory
    if memory.products.count == 0:
        return Decision.ACCEPT, None
    assert gradient.dots is not None
    dots = gradient.dots * (gradient.working_norm / gradient.norm)
    sample = memory.sampler.draw(memory.products.count, layer.options["samples"])
    matrices = gradient.matrices()
    return judge(layer, gradient, matrices, sample, dots[sample], dots)
