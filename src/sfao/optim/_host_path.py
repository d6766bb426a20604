"""The gate on the host: one layer after the other, each decision known before the next."""

from collections.abc import Callable, Sequence
from functools import cached_property
from math import hypot, isfinite, prod
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from sfao.gating._layout import Layout
from sfao.gating.decision import Decision
from sfao.gating.softness import ALL, NOTHING
from sfao.optim import _gate_path as gate_path
from sfao.optim._gate_path import NonFiniteGradient, PathHistory, Report
from sfao.optim.layers import Layer

if TYPE_CHECKING:
    from sfao.optim._softening import Softening

T = TypeVar("T")

# Norms between these are far from where squares leave the range of float32; gradients beyond are rescaled.
SMALL, LARGE = 1e-12, 1e12
SMALLEST = 1e-300


class HostPath:
    """Gates on the host; see :class:`sfao.optim._gate_path.Path`."""

    is_open = False

    def __init__(self, layers: list[Layer], history: PathHistory, report: Report | None = None) -> None:
        """`layers` are all there are, now and later."""
        self.history = history
        self._layers = layers
        self._report = report or Report()

    def serves(self) -> bool:
        devices = gate_path.DEVICES
        return not any(
            parameter.grad is not None and parameter.grad.device.type in devices
            for layer in self._layers
            for parameter in layer.parameters
        )

    def step(self, softening: "Softening | None") -> None:
        found = find_finite_gradients(self._layers)
        self._report = Report(norms={layer.name: gradient.norm for layer, gradient in found})
        if softening is not None and softening.layers:
            softening.apply(lambda parameter: parameter.grad)
            # Only directions look at what is left of a gradient; whether it was zero is known.
            softened = {layer for layer in softening.layers if len(layer.memory)}
            found = [(layer, read_gradient(layer) if layer in softened else gradient) for layer, gradient in found]
        for layer, gradient in found:
            self._count(layer, *gate_layer(layer, gradient))
        if softening is not None and softening.layers:
            self.note(softening)

    def _count(self, layer: Layer, decision: Decision | None, cosine: float | None) -> None:
        """Count and report a decision, None on a gradient of zero, and the cosine that it was made by."""
        layer.counts[decision or "zero"] += 1
        if cosine is not None:
            self._report.cosines[layer.name] = cosine
        if decision:
            self._report.decisions[layer.name] = decision

    def note(self, softening: "Softening") -> None:
        for layer, share, drift in softening.outcomes():
            self._report.kept[layer.name], self._report.drifts[layer.name] = share, drift
            before = self._report.decisions.get(layer.name)
            decision = merge_decisions(before, share)
            if decision is not None and decision is not before:
                # One statement: an interrupt must not leave a decision that is counted nowhere.
                counts, old = layer.counts, before or "zero"
                counts[old], counts[decision] = counts[old] - 1, counts[decision] + 1
                self._report.decisions[layer.name] = decision

    def work_whole(self, work: Callable[[], T]) -> T:
        return work()

    def report(self) -> Report:
        return self._report

    def counts(self) -> dict[str, dict[str, int]]:
        self.history.check_stale()
        return {layer.name: dict(layer.counts) for layer in self._layers}

    def close(self) -> None:
        self.history.check_stale()

    def abandon(self) -> None:
        pass


def merge_decisions(decision: Decision | None, share: float) -> Decision | None:
    """Return the decision on a gradient of which softening left this share before directions decided."""
    if share <= NOTHING:
        return Decision.DISCARD
    return Decision.PROJECT if decision is Decision.ACCEPT and share <= ALL else decision


def gate_layer(layer: Layer, gradient: "LayerGradient") -> tuple[Decision | None, float | None]:
    """Decide on a gradient and make it the update; return the decision and the cosine that it was made by.

    There is no decision on a gradient of zero, and no cosine where there is nothing to compare with.
    """
    if gradient.norm == 0:
        return None, None
    memory, products = layer.memory, layer.memory.products
    count = products.count
    if count == 0:
        return Decision.ACCEPT, None
    follow_gradient(layer, gradient)
    matrices = gradient.matrices()
    sample = memory.sampler.draw(count, layer.options["samples"])
    # Inner products with everything serve the projection too, where they had to be or may as well be taken.
    all_dots = products.dots(matrices) if products.is_small or isinstance(sample, slice) else None
    dots = products.dots(matrices, sample) if all_dots is None else all_dots[sample]
    return judge(layer, gradient, matrices, sample, dots, all_dots)


def judge(
    layer: Layer,
    gradient: "LayerGradient",
    matrices: Sequence[Tensor | None],
    sample: Tensor | slice,
    dots: Tensor,
    all_dots: Tensor | None,
) -> tuple[Decision, float]:
    """Decide on a gradient by its inner products with a sample, or with all directions, and make it the update."""
    memory, products, options = layer.memory, layer.memory.products, layer.options
    largest, smallest = products.extreme_cosines(matrices, gradient.working_norm, dots, sample, options["cosine"])
    accepts, projects, *state = layer.rule.judge(largest, smallest, *layer.rule_numbers, *layer.rule_state)
    layer.rule_state = tuple(state)
    if accepts:
        return Decision.ACCEPT, largest
    if projects:
        products.project_(matrices, gradient.working_norm, options["projection"], memory.slots, all_dots)
        gradient.write_back(matrices)
        return Decision.PROJECT, largest
    gradient.zero_()
    return Decision.DISCARD, largest


def find_gradients(layers: Sequence[Layer]) -> "list[tuple[Layer, LayerGradient]]":
    """Return the layers that have gradients, with them."""
    return [
        (layer, read_gradient(layer))
        for layer in layers
        if any(parameter.grad is not None for parameter in layer.parameters)
    ]


def find_finite_gradients(layers: Sequence[Layer]) -> "list[tuple[Layer, LayerGradient]]":
    """Return the layers that have gradients, with them; raise a NonFiniteGradient if one is not finite."""
    found = find_gradients(layers)
    for layer, gradient in found:
        check_finite(layer, gradient)
    return found


def read_gradient(layer: Layer, gradients: Sequence[Tensor | None] | None = None) -> "LayerGradient":
    """Return the given gradients of the layer's parameters, or those that backward() left in them."""
    if gradients is None:
        gradients = [parameter.grad for parameter in layer.parameters]
    if any(gradient is not None and gradient.layout != torch.strided for gradient in gradients):
        raise ValueError(f"the gradient of layer {layer.name!r} must be dense, got a sparse tensor")
    return LayerGradient(gradients, layer.memory.products.layouts)


def check_finite(layer: Layer, gradient: "LayerGradient") -> None:
    if not isfinite(gradient.norm):
        raise NonFiniteGradient(f"the gradient of layer {layer.name!r} must be finite, got {gradient.norm}")


def follow_gradient(layer: Layer, gradient: "LayerGradient") -> None:
    """Bring the memory to the device of the gradient, and into its order, should the model have moved."""
    memory, device = layer.memory, gradient.present[0].device
    if memory.blocks[0].tensors[0].device != device:
        memory.to(device)
    order = gradient.channels_last
    if any(new is not None and new != old for new, old in zip(order, memory.channels_last, strict=True)):
        memory.arrange(order)


class LayerGradient:
    """The gradients of a layer's parameters (None where there is none), with their joint norm.

    `matrices` are in float32 or float64 and share memory with the gradients where they can: `write_back`
    copies only what does not. Gradients of extreme size are worked on at norm 1.
    """

    def __init__(self, gradients: Sequence[Tensor | None], layouts: Sequence[Layout]) -> None:
        self.gradients = gradients
        self.present = [gradient for gradient in gradients if gradient is not None and gradient.numel()]
        self._layouts = layouts

    @cached_property
    def norm(self) -> float:
        return measure_norm(self.present)

    @cached_property
    def _scale(self) -> float:
        return 1.0 if self.norm == 0 or SMALL < self.norm < LARGE else 1.0 / self.norm

    @property
    def channels_last(self) -> list[int | None]:
        """The order of each gradient in memory: see `Memory.arrange`."""
        return [None if gradient is None else count_channels_last(gradient) for gradient in self.gradients]

    @property
    def working_norm(self) -> float:
        return self.norm * self._scale

    def matrices(self) -> list[Tensor | None]:
        return as_matrices(self._layouts, [None if g is None else self._prepare(g) for g in self.gradients])

    def own_matrices(self) -> list[Tensor | None]:
        """Return matrices at their own scale, in float64 where float32 might not hold their products."""
        largest = measure_norm(self.present)
        wide = largest != 0 and not SMALL < largest < LARGE
        prepared = [None if g is None else (g.double() if wide else g.to(working_dtype(g))) for g in self.gradients]
        return as_matrices(self._layouts, prepared)

    def write_back(self, matrices: Sequence[Tensor | None]) -> None:
        for gradient, matrix in zip(self.gradients, matrices, strict=True):
            if gradient is None or matrix is None:
                continue
            if self._scale != 1:
                place = in_memory_order(gradient)
                place.copy_((matrix.double() / self._scale).view(place.shape))
            elif matrix.data_ptr() != gradient.data_ptr():
                place = in_memory_order(gradient)
                place.copy_(matrix.view(place.shape))

    def zero_(self) -> None:
        for gradient in self.present:
            gradient.zero_()

    def _prepare(self, gradient: Tensor) -> Tensor:
        dtype = working_dtype(gradient)
        working = gradient.to(dtype) if self._scale == 1 else (gradient.double() * self._scale).to(dtype)
        return working if count_channels_last(working) else working.contiguous()


def as_matrices(layouts: Sequence[Layout], gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Return each gradient as its columns of its matrix, in its order in memory; a view where strides allow."""
    shapes = [(layout.rows, columns) for layout in layouts for columns in layout.columns]
    return [
        None if gradient is None else in_memory_order(gradient).reshape(shape)
        for gradient, shape in zip(gradients, shapes, strict=True)
    ]


def measure_norm(tensors: Sequence[Tensor]) -> float:
    """Return the Euclidean norm over several tensors, for entries of any size; not finite if an entry is not."""
    if not tensors:
        return 0.0
    plain = hypot(*(float(torch.linalg.vector_norm(tensor, dtype=working_dtype(tensor))) for tensor in tensors))
    if SMALL < plain < LARGE:
        return plain
    largest = float(torch.stack([tensor.abs().max().double() for tensor in tensors]).max())
    if not isfinite(largest):
        return largest
    if largest < SMALLEST:  # its inverse would not be finite
        return 0.0
    return largest * hypot(*(float(torch.linalg.vector_norm(tensor.double() / largest)) for tensor in tensors))


def count_channels_last(tensor: Tensor) -> int:
    """Return the number of channels of a tensor that lies in memory with them last, 0 of any other."""
    if tensor.ndim not in (4, 5) or tensor.is_contiguous() or not tensor.movedim(1, -1).is_contiguous():
        return 0
    return tensor.shape[1]


def in_memory_order(tensor: Tensor) -> Tensor:
    """Return the tensor with its channels last if it lies so in memory."""
    return tensor.movedim(1, -1) if count_channels_last(tensor) else tensor


def as_matrix(tensor: Tensor, rows: int) -> Tensor:
    """Return a matrix of so many rows, in float32 or float64; a view where strides and dtype allow."""
    if not tensor.numel():
        return tensor.reshape(rows, 0 if rows else prod(tensor.shape[1:])).to(working_dtype(tensor))
    if tensor.is_contiguous():
        return tensor.view(rows, -1).to(working_dtype(tensor))
    matrix = in_memory_order(tensor).contiguous().view(rows, -1)
    return matrix.to(working_dtype(matrix))


def working_dtype(tensor: Tensor) -> torch.dtype:
    """Return the dtype in which to work with a tensor."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32
