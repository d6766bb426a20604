"""The gate's step on CUDA, captured as two graphs: it is hundreds of small kernels that take long to launch.

The first graph measures copies of the gradients. One transfer brings its numbers to the host, which decides as on a
CPU. The second graph projects the copies. Rare cases (extreme norms, nearly dependent directions) are left to the plain
step.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import pad

from sfao.cuda_graph import capture
from sfao.decision import Decision
from sfao.memory.memory import LARGE, SMALL, measure_norms, write_matrix
from sfao.projection import Span

if TYPE_CHECKING:
    from sfao.gate import Gate
    from sfao.step import LayerStep


def run_graphs(gate: "Gate", steps: Sequence["LayerStep"]) -> bool:
    """Decide and project with CUDA graphs; return False, with nothing changed, where that isn't possible."""
    if gate.is_sharded or not steps:
        return False
    key = make_key(steps)
    if key not in gate.graphs:
        gate.graphs.clear()
        is_capturing = torch.cuda.is_current_stream_capturing()
        gate.graphs[key] = GraphStep(steps) if can_capture(steps) and not is_capturing else None
    graphs = gate.graphs[key]
    return graphs is not None and graphs.run(steps)


class GraphStep:
    """Two captured graphs for layers with these memories and gradients.

    Numbers of all layers are computed together, (layers x directions), with zeros where a layer has fewer directions.

    Args:
        steps: the gradients of all layers that have some. All have directions and lie on one device.
    """

    def __init__(self, steps: Sequence["LayerStep"]) -> None:
        self._device = steps[0].present[0].device
        self._buffers = [torch.zeros_like(gradient) for step in steps for gradient in step.present]
        remaining = iter(self._buffers)
        self._copies = [
            type(step)(step.layer, [None if gradient is None else next(remaining) for gradient in step.gradients])
            for step in steps
        ]
        #: What the key names by its address must live as long.
        self._alive = [(step.memory.slots, step.memory.parts[0].held) for step in steps]
        projections = [step.memory.projection("span", step.active) for step in steps]
        norms = [step.memory.gram(step.active).inverse_norms for step in steps]
        longest = max(map(len, norms))
        self._inverse_norms = torch.stack([pad(own, (0, longest - len(own))) for own in norms])
        self._scaled = torch.stack([_pad_square(p.scaled, longest) for p in projections if isinstance(p, Span)])
        self._projections = projections
        shape = len(steps), longest
        self._is_stored = (self._inverse_norms > 0).cpu()
        #: By layer, the sampled directions; 1 if it is projected, and 0 otherwise. Each with its copy on the host.
        self._is_sampled, self._sampled = (self._make(shape, torch.bool, device) for device in ("cpu", self._device))
        self._is_projected, self._projected = (
            self._make((len(steps), 1), torch.float64, device) for device in ("cpu", self._device)
        )
        self._dots, self._weights = (self._make(shape, torch.float64, self._device) for _ in range(2))
        self._numbers = self._make((0,), torch.float64, self._device)
        self._measuring = capture(self._measure, self._device)
        self._changing = capture(self._change, self._device)

    def _make(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str) -> Tensor:
        is_pinned = self._device.type == "cuda" and device == "cpu"
        return torch.zeros(shape, dtype=dtype, device=device, pin_memory=is_pinned)

    def _measure(self) -> None:
        for dots, copy in zip(self._dots, self._copies, strict=True):
            copy.matrices = copy.memory.as_matrices(copy.gradients)
            dots[: len(copy.memory)] = copy.memory.dots(copy.matrices)
        weights = self._scaled @ (self._scaled.mT @ self._dots[:, :, None])
        self._weights.copy_(weights[:, :, 0])
        unit = self._dots * self._inverse_norms
        smallest = torch.where(self._sampled, unit, torch.inf).amin(1)
        largest = torch.where(self._sampled, unit, -torch.inf).amax(1)
        removed, size = (self._dots * self._weights).sum(1), self._weights.abs().sum(1)
        norms = torch.stack(measure_norms(self._buffers)).double()
        self._numbers = torch.cat([norms, smallest, largest, removed, size])

    def _change(self) -> None:
        weights = self._weights * self._projected
        narrow = weights.float() if self._copies[0].present[0].dtype != torch.float64 else weights
        for own, copy in zip(narrow, self._copies, strict=True):
            copy.memory.subtract_(copy.matrices, own[: len(copy.memory)])
            for matrix, gradient, last in zip(copy.matrices, copy.gradients, copy.memory.channels_last, strict=True):
                if gradient is not None and matrix is not None:
                    write_matrix(matrix, gradient, last)

    def _draw(self, steps: Sequence["LayerStep"]) -> None:
        """Draw the directions to compare with, for all layers."""
        for step in steps:
            step.sample = step.draw()
        drawn = [(number, step.sample) for number, step in enumerate(steps) if step.sample is not None]
        self._is_sampled.copy_(self._is_stored)
        if drawn:
            self._is_sampled[[number for number, _ in drawn]] = False
            rows = [number for number, sample in drawn for _ in range(len(sample))]
            self._is_sampled[rows, torch.cat([sample for _, sample in drawn])] = True
        self._sampled.copy_(self._is_sampled, non_blocking=True)

    def run(self, steps: Sequence["LayerStep"]) -> bool:
        """Decide and change the gradients; return False, with nothing changed, for a case that is left out."""
        gradients = [gradient for step in steps for gradient in step.present]
        torch._foreach_copy_(self._buffers, gradients)
        self._draw(steps)
        self._measuring.replay()
        numbers = self._numbers.tolist()
        norms, rest = iter(numbers[: len(gradients)]), numbers[len(gradients) :]
        for number, (step, projection) in enumerate(zip(steps, self._projections, strict=True)):
            smallest, largest, removed, size = rest[number :: len(steps)]
            step.norm = sum(next(norms) ** 2 for _ in step.present) ** 0.5
            if not SMALL < step.norm < LARGE:
                return False
            step.extremes = [smallest, largest]
            step.decide(clears=False)
            is_projected = step.decision is Decision.PROJECT
            if is_projected and step.needs_float64(projection, removed, size):
                return False
            step.kept = step.share_left(removed) if is_projected else 1.0
            self._is_projected[number] = is_projected
        self._projected.copy_(self._is_projected, non_blocking=True)
        self._changing.replay()
        torch._foreach_copy_(gradients, self._buffers)
        for step in steps:
            if step.decision is Decision.DISCARD:
                step.clear()
        return True


def make_key(steps: Sequence["LayerStep"]) -> tuple[object, ...]:
    """Return what the graphs depend on: memories, options, and the form of the gradients."""
    return tuple(
        (
            id(step.memory.slots),
            id(step.memory.parts[0].held),
            step.active,
            step.layer.options["projection"],
            *((gradient.shape, gradient.stride(), gradient.dtype) for gradient in step.present),
        )
        for step in steps
    )


def can_capture(steps: Sequence["LayerStep"]) -> bool:
    """Return True if the step of these layers can be captured."""
    if len({(gradient.device, gradient.dtype) for step in steps for gradient in step.present}) != 1:
        return False
    for step in steps:
        memory, size = step.memory, sum(gradient.numel() for gradient in step.present)
        if not len(memory) or step.layer.options["projection"] != "span":
            return False
        if memory.parts[0].tensors[0].device != step.present[0].device or memory.gram(step.active).has_zero:
            return False
        if memory.projection("span", step.active).rank >= size:
            return False
    return True


def _pad_square(matrix: Tensor, size: int) -> Tensor:
    return pad(matrix, (0, size - matrix.shape[1], 0, size - matrix.shape[0]))
