"""The gate's step on CUDA, captured as two graphs: it is hundreds of small kernels that take long to launch.

The first graph measures copies of the gradients, and computes their projections' weights. One transfer brings its
numbers to the host, which decides as on a CPU. The second graph projects the copies. Layers that need float64 are
projected without a graph, and gradients of extreme size are left to the plain step.
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
    if not steps or gate.is_sharded or not all(can_capture(step) for step in steps):
        return False
    # The products among directions are computed anew after these have changed.
    key = tuple((step.present[0].dtype, step.active, id(step.memory.gram(step.active))) for step in steps)
    if key not in gate.graphs:
        if len({(gradient.device, gradient.dtype) for step in steps for gradient in step.present}) != 1:
            return False
        gate.graphs.clear()
        gate.graphs[key] = GraphStep(steps)
    graphs: GraphStep = gate.graphs[key]
    return graphs.run(steps)


def can_capture(step: "LayerStep") -> bool:
    """Return True if the step of a layer can be captured."""
    memory = step.memory
    if not len(memory) or step.layer.options["projection"] != "span":
        return False
    if memory.parts[0].held[0].device != step.present[0].device or memory.gram(step.active).has_zero:
        return False
    return memory.projection("span", step.active).rank < sum([gradient.numel() for gradient in step.present])


class GraphStep:
    """Two captured graphs for layers with these memories and gradients.

    Numbers of all layers are computed together, (layers x directions), with zeros where a layer has fewer directions.

    Args:
        steps: the gradients of all layers that have some. All have directions and lie on one device.
    """

    def __init__(self, steps: Sequence["LayerStep"]) -> None:
        device = steps[0].present[0].device
        self._buffers = [torch.zeros_like(gradient) for step in steps for gradient in step.present]
        remaining = iter(self._buffers)
        self._copies = [
            type(step)(step.layer, [None if gradient is None else next(remaining) for gradient in step.gradients])
            for step in steps
        ]
        # What the key names by its address must live as long.
        self._grams = [step.memory.gram(step.active) for step in steps]
        self._projections = [step.memory.projection("span", step.active) for step in steps]
        longest = max(len(step.memory) for step in steps)
        norms = [pad(gram.inverse_norms, (0, longest - len(gram.inverse_norms))) for gram in self._grams]
        self._inverse_norms = torch.stack(norms)
        self._scaled = torch.stack([_pad_square(p.scaled, longest) for p in self._projections if isinstance(p, Span)])
        self._is_stored = (self._inverse_norms > 0).cpu()
        #: By layer, the sampled directions; and 1 if it is projected. Each with its copy on the host.
        pin, shape = device.type == "cuda", (len(steps), longest)
        self._is_sampled = torch.zeros(shape, dtype=torch.bool, device="cpu", pin_memory=pin)
        self._is_projected = torch.zeros(len(steps), 1, dtype=torch.float64, device="cpu", pin_memory=pin)
        self._sampled, self._projected = self._is_sampled.to(device), self._is_projected.to(device)
        self._dots = torch.zeros(shape, dtype=torch.float64, device=device)
        self._weights, self._numbers = torch.zeros_like(self._dots), torch.zeros(0, device=device)
        self._measuring, self._changing = capture(self._measure, device), capture(self._change, device)

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
        narrow = weights if self._buffers[0].dtype == torch.float64 else weights.float()
        for own, copy in zip(narrow, self._copies, strict=True):
            copy.memory.subtract_(copy.matrices, own[: len(copy.memory)])
            for matrix, gradient, last in zip(copy.matrices, copy.gradients, copy.memory.channels_last, strict=True):
                if gradient is not None and matrix is not None:
                    write_matrix(matrix, gradient, last)

    def _draw(self, steps: Sequence["LayerStep"]) -> None:
        """Draw the directions to compare with, for all layers."""
        self._is_sampled.copy_(self._is_stored)
        for own, step in zip(self._is_sampled, steps, strict=True):
            step.sample = step.layer.sampler.peek(len(step.memory), step.layer.options["samples"])
            if step.sample is not None:
                own.zero_().index_fill_(0, step.sample, True)
        self._sampled.copy_(self._is_sampled, non_blocking=True)

    def run(self, steps: Sequence["LayerStep"]) -> bool:
        """Decide and change the gradients; return False, with nothing changed, for a case that is left out."""
        gradients = [gradient for step in steps for gradient in step.present]
        torch._foreach_copy_(self._buffers, gradients)
        self._draw(steps)
        self._measuring.replay()
        numbers = self._numbers.tolist()
        norms, rest, count = iter(numbers[: len(gradients)]), numbers[len(gradients) :], len(steps)
        is_projected, rough = [], []
        for number, (step, projection) in enumerate(zip(steps, self._projections, strict=True)):
            smallest, largest, removed, size = rest[number::count]
            step.norm = sum(next(norms) ** 2 for _ in step.present) ** 0.5
            if step.norm != 0 and not SMALL < step.norm < LARGE:
                return False
            step.decide(smallest, largest)
            is_own = step.decision is Decision.PROJECT
            if is_own and step.set_kept(projection, removed, size):
                rough.append((step, projection))
                is_own = False
            is_projected.append([is_own])
        self._is_projected.copy_(torch.tensor(is_projected))
        self._projected.copy_(self._is_projected, non_blocking=True)
        self._changing.replay()
        torch._foreach_copy_(gradients, self._buffers)
        for step, projection in rough:
            step.matrices = step.memory.as_matrices(step.gradients)
            step.project(projection)
        return True


def _pad_square(matrix: Tensor, size: int) -> Tensor:
    return pad(matrix, (0, size - matrix.shape[1], 0, size - matrix.shape[0]))
