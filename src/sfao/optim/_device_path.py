"""The gate's steps on an accelerator: made ready once, launched or replayed every step, read when somebody asks."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import itemgetter
from typing import TypeVar

import torch
from torch import Tensor

from sfao.gating._block import ALIGNED_BYTES
from sfao.gating.decision import COUNTED, DECISIONS, ZERO
from sfao.optim import _gate_path as gate_path
from sfao.optim._gate_path import NonFiniteGradient, PathHistory, Report, make_capture_error
from sfao.optim._host_path import LayerGradient, as_matrices, in_memory_order, merge_decisions
from sfao.optim._softened_counts import SoftenedCounts
from sfao.optim._softening import Softening
from sfao.optim.layers import Layer

T = TypeVar("T")

#: Steps between looks at whether a gradient was not finite.
LOOK_EVERY = 32
#: Steps before the launches, compiled by then, are captured as a graph.
WARM_UP = 2

#: The options that launches are prepared for.
_read_prepared = itemgetter("samples", "cosine", "projection")


def make_current(device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which kernels are launched and events recorded on this device.

    Unlike torch, Triton and CUDA take the current one, wherever the tensors are.
    """
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


class DevicePath:
    """Gates all layers together on a device, without waiting for it; see :class:`sfao.optim._gate_path.Path`.

    A gradient that is not finite is raised when somebody looks, or some steps later.
    """

    def __init__(self, layers: list[Layer], found: Sequence[tuple[Layer, LayerGradient]], history: PathHistory) -> None:
        """`layers` are all there are, now and later; `found` those that have gradients."""
        from sfao.gating._device.engine import DeviceGate, Member

        self.history = history
        self.is_open = True
        self._layers = [layer for layer, _ in found]
        self._all_layers = layers
        members = [
            Member(
                layer.memory,
                layer.options,
                layer.rule,
                layer.rule_state,
                _as_contiguous_matrices(layer, gradient.gradients),
            )
            for layer, gradient in found
        ]
        self._device = found[0][1].present[0].device
        with make_current(self._device):
            self.gate: DeviceGate = DeviceGate(members)
        self._memories = self._read_memories()
        self._forms = self._read_forms()
        #: True if a gradient lies in memory in no order that the kernels could follow.
        self._copies = any(not in_memory_order(gradient).is_contiguous() for gradient in self._gradients())
        self._addresses: list[int] = []
        #: True if a step is part of a graph that the user replays.
        self.captured = False
        self._options = [layer.checked_options for layer in self._layers]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._steps = 0
        #: The report of the last step; None while only the device knows.
        self._report: Report | None = Report()
        self._flags: _Fetch | None = None
        self._softening: Softening | None = None
        self._softened = SoftenedCounts(self.gate.codes)

    # -- Every step ------------------------------------------------------------------------------------

    def serves(self) -> bool:
        """Tell whether all is as this path was made for; a gradient may lie elsewhere, but not aligned otherwise."""
        if not self.is_open:
            return False
        if gate_path.is_capturing():
            if not self._serves_capture():
                raise make_capture_error()
            return True
        self._raise_for(self._look())
        return self._is_as_made()

    def _is_as_made(self) -> bool:
        return self._memories == self._read_memories() and self._forms == self._read_forms()

    def _serves_capture(self) -> bool:
        """Tell whether nothing would have to be sent from the host, which a graph could not repeat."""
        return self._is_as_made() and self._options == [layer.checked_options for layer in self._layers]

    def _read_memories(self) -> list[object]:
        """Return the version of every memory, with the options that launches are prepared for."""
        return [(layer.memory.version, _read_prepared(layer.options)) for layer in self._all_layers]

    def _read_forms(self) -> list[object]:
        """Return how the gradient of every parameter lies in memory, but not where."""
        return [_describe(parameter.grad) for layer in self._all_layers for parameter in layer.parameters]

    def _gradients(self) -> list[Tensor]:
        found = (parameter.grad for layer in self._all_layers for parameter in layer.parameters)
        return [gradient for gradient in found if gradient is not None]

    def step(self, softening: Softening | None) -> Tensor:
        """Turn the gradients into updates, or replay doing so."""
        self._softening = softening if softening is not None and softening.layers else None
        with make_current(self._device):
            if self._softening is not None:
                self._softening.apply(lambda parameter: parameter.grad)
            self._step()
            if self._softening is not None:
                self._softened.count(self._layers, self._softening, self.gate.codes, self.gate.sound)
        self._report = None
        return self.gate.sound

    def note(self, softening: Softening) -> None:
        self._softening = softening
        self._softened.count(self._layers, softening, self.gate.codes, self.gate.sound)
        self._report = None

    def _step(self) -> None:
        self.captured = self.captured or gate_path.is_capturing()
        gradients = self._gradients()
        working = [_make_contiguous(gradient) for gradient in gradients] if self._copies else gradients
        self._point_at(working)
        if self._options != [layer.checked_options for layer in self._layers]:
            self._options = [layer.checked_options for layer in self._layers]
            self.gate.follow_options()
        if gate_path.is_capturing() or self._device.type != "cuda" or self._steps < WARM_UP:
            self.gate.run()
        elif self._graph is None:
            self._graph = self._record()
        else:
            self._graph.replay()
        if self._copies:
            for gradient, outcome in zip(gradients, working, strict=True):
                if outcome.data_ptr() != gradient.data_ptr():
                    in_memory_order(gradient).copy_(outcome)
        self._steps += 1

    def _point_at(self, gradients: list[Tensor]) -> None:
        """Point the launches at where the gradients lie now: they read the addresses from tables, graph or not."""
        addresses = [gradient.data_ptr() for gradient in gradients]
        # A graph that the user has captured points at its own gradients whenever it is replayed.
        if addresses != self._addresses or self.captured:
            self.gate.point_at(addresses)
            self._addresses = addresses

    def _record(self) -> torch.cuda.CUDAGraph:
        """Return the launches of a step as one graph; the step itself is done by its first replay."""
        graph = torch.cuda.CUDAGraph()
        # A stream of its own: the one that torch would take is on the device of whoever captured first.
        stream = torch.cuda.Stream(self._device)
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            self.gate.run()
        graph.replay()
        return graph

    # -- Answers ---------------------------------------------------------------------------------------

    def work_whole(self, work: Callable[[], T]) -> T:
        return work()

    def report(self) -> Report:
        # Where a step was captured, a replay may have been the last one.
        if self.is_open and (self._report is None or self.captured):
            self._raise_for(self._name(self.gate.broken))
            self._report = self._read_report()
        return self._report or Report()

    def counts(self) -> dict[str, dict[str, int]]:
        if self.is_open:
            self._hand_over_counts()
            self._raise_for(self._name(self.gate.broken))
        self.history.check_stale()
        return {layer.name: dict(layer.counts) for layer in self._all_layers}

    def close(self) -> None:
        if self.is_open:
            if self._report is None or self.captured:
                self._report = self._read_report()
            self._hand_over_counts()
            broken = self._name(self.gate.broken)
            self.abandon()
            self._raise_for(broken)
        self.history.check_stale()

    def abandon(self) -> None:
        if self.is_open:
            self.is_open = False
            if self.captured:
                self.gate.retire()
                self.history.retired.append(self.gate)
            del self.gate, self._graph

    def _look(self) -> list[str]:
        """Return layers whose gradient was found not to be finite, without waiting: in steps some time ago."""
        if self._flags is None:
            if self._steps and self._steps % LOOK_EVERY == 0:
                self._flags = _Fetch(self.gate.broken)
            return []
        if not self._flags.has_arrived:
            return []
        flags, self._flags = self._flags, None
        return self._name(flags.values)

    def _raise_for(self, names: list[str]) -> None:
        if names:
            if self.is_open:
                self.gate.broken.zero_()
                self._flags = None
            raise NonFiniteGradient(
                f"the gradient of layer {names[0]!r} must be finite, but was not; that step changed nothing"
            )

    def _name(self, flags: Tensor) -> list[str]:
        return [layer.name for layer, flag in zip(self._layers, flags.tolist(), strict=True) if flag]

    def _read_report(self) -> Report:
        """Return the report of the last step, empty if a gradient was not finite."""
        gate, report = self.gate, Report()
        if not gate.sound:
            return report
        table = torch.stack([gate.codes.double(), gate.cosines, gate.norms]).tolist()
        for layer, code, cosine, norm in zip(self._layers, *table, strict=True):
            report.norms[layer.name] = norm
            if int(code) != ZERO:
                report.decisions[layer.name] = DECISIONS[int(code)]
                if len(layer.memory):
                    report.cosines[layer.name] = cosine
        for layer, share, drift in self._softening.outcomes() if self._softening else ():
            report.kept[layer.name], report.drifts[layer.name] = share, drift
            decision = merge_decisions(report.decisions.get(layer.name), share)
            if decision is not None:
                report.decisions[layer.name] = decision
        return report

    def _hand_over_counts(self) -> None:
        """Add to the counts of the layers what was counted on the device since the last time."""
        table = torch.cat([self.gate.counts, self.gate.turns[:, None]], dim=1).tolist()
        states = self.gate.rule_states.tolist()
        for layer, (*counts, turn), state in zip(self._layers, table, states, strict=True):
            layer.memory.sampler.turn = turn
            layer.rule_state = tuple(state)
            for name, count in zip(COUNTED, counts, strict=True):
                layer.counts[name] += count
        self.gate.counts.zero_()
        self._softened.hand_over(self._layers)


class _Fetch:
    """Values on their way from the device."""

    def __init__(self, source: Tensor) -> None:
        on_gpu = source.device.type == "cuda"
        self.values = torch.empty(source.shape, dtype=source.dtype, device="cpu", pin_memory=on_gpu)
        self.values.copy_(source, non_blocking=True)
        self._arrival = torch.cuda.Event() if on_gpu else None
        if self._arrival is not None:
            with make_current(source.device):
                self._arrival.record()

    @property
    def has_arrived(self) -> bool:
        return self._arrival is None or self._arrival.query()


def _describe(gradient: Tensor | None) -> object:
    if gradient is None or gradient.layout != torch.strided:
        return None if gradient is None else gradient.layout
    return gradient.shape, gradient.stride(), gradient.dtype, gradient.device, gradient.data_ptr() % ALIGNED_BYTES == 0


def _as_contiguous_matrices(layer: Layer, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
    return as_matrices(layer.memory.products.layouts, [None if g is None else _make_contiguous(g) for g in gradients])


def _make_contiguous(gradient: Tensor) -> Tensor:
    """Return the gradient as the kernels walk through it; a copy where it lies in no such order."""
    return in_memory_order(gradient).contiguous()
