"""The gate's steps on an accelerator: made ready once, launched or replayed every step, read when somebody asks."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.util import find_spec
from operator import itemgetter

import torch
from torch import Tensor

from sfao.gating.block import ALIGNED_BYTES
from sfao.gating.decision import COUNTED, DECISIONS, ZERO
from sfao.gating.layout import as_matrices, in_memory_order
from sfao.optim.layers import Found, Layer
from sfao.optim.seen import Seen

#: Where kernels run. (Under Triton's interpreter they run on a CPU, which is how they are tested without a GPU.)
DEVICES = {"cuda"}
#: The first compute capability with the tensor cores that the kernels count on.
CAPABILITY = (8, 0)
#: Steps between looks at whether a gradient was not finite.
LOOK_EVERY = 32
#: Steps before the launches, compiled by then, are captured as a graph.
WARM_UP = 2

_PREPARED_FOR = itemgetter("samples", "cosine", "projection")


def obstacle(found: Found) -> str | None:
    """Why these gradients cannot be gated on the device, in words; "" when they are on none, None when they can."""
    gradients = [gradient for _, layer_gradient in found for gradient in layer_gradient.present]
    devices = {gradient.device for gradient in gradients}
    if not gradients or not any(device.type in DEVICES for device in devices):
        return ""
    if len(devices) > 1:
        return f"the gradients are on several devices ({', '.join(sorted(map(str, devices)))})"
    if any(gradient.dtype != torch.float32 for gradient in gradients):
        return "the gradients are not all float32"
    if any(layer.options["projection"] == "cone" for layer, _ in found):
        return "the cone projection is solved step by step"
    return _lacking(next(iter(devices)))


@cache
def _lacking(device: torch.device) -> str | None:
    if find_spec("triton") is None:
        return "Triton is not installed"
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < CAPABILITY:
        return f"its compute capability is below {'.'.join(map(str, CAPABILITY))}"
    return _failing(device)


def _failing(device: torch.device) -> str | None:
    """What goes wrong with the smallest kernel: Triton needs a C compiler, a driver that is new enough, a cache."""
    try:
        from sfao.gating.device.addresses import Addresses

        with current(device):
            Addresses([torch.zeros(1, device=device)])
    except Exception as error:
        return f"Triton cannot run here ({str(error).strip().partition(chr(10))[0]})"
    return None


def current(device: torch.device) -> AbstractContextManager[object]:
    """Let this be the device that kernels are launched on and events recorded: unlike torch, Triton and CUDA take the
    current one, wherever the tensors are.
    """
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def is_capturing() -> bool:
    """Whether what is launched now is not done, but recorded in a CUDA graph."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


class DevicePath:
    """The device gate over these layers, and how its launches, samples and answers travel."""

    def __init__(self, layers: Sequence[Layer], found: Found) -> None:
        """`layers` are all there are, now and later; `found` those that have gradients."""
        from sfao.gating.device.engine import DeviceGate, Member

        self._layers = [layer for layer, _ in found]
        self._all_layers = layers
        members = [
            Member(layer.memory, layer.options, _as_contiguous_matrices(layer, gradient.gradients))
            for layer, gradient in found
        ]
        self._device = found[0][1].present[0].device
        with current(self._device):
            self.gate: DeviceGate = DeviceGate(members)
        self._memories = self._current_memories()
        self._forms = self._current_forms()
        #: Whether a gradient lies in memory in no order that the kernels could follow.
        self._copies = any(not in_memory_order(gradient).is_contiguous() for gradient in self._gradients())
        self._addresses: list[int] = []
        #: Whether a step is part of a graph that somebody else replays.
        self.captured = False
        self._options = [layer.checked for layer in self._layers]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._steps = 0
        self._looking: _Answer | None = None

    # -- Every step ------------------------------------------------------------------------------------

    def serves(self) -> bool:
        """Whether all is as this path was made for; where the gradients lie may differ, but not how it aligns."""
        return self._memories == self._current_memories() and self._forms == self._current_forms()

    def serves_a_capture(self) -> bool:
        """Whether nothing would have to be sent from the host, which a graph could not repeat."""
        return self.serves() and self._options == [layer.checked for layer in self._layers]

    def _current_memories(self) -> list[object]:
        """What every layer remembers, and the options that launches are prepared for."""
        return [(layer.memory.version, _PREPARED_FOR(layer.options)) for layer in self._all_layers]

    def _current_forms(self) -> list[object]:
        """How the gradient of every parameter lies in memory, but not where."""
        return [_form(parameter.grad) for layer in self._all_layers for parameter in layer.parameters]

    def _gradients(self) -> list[Tensor]:
        found = (parameter.grad for layer in self._all_layers for parameter in layer.parameters)
        return [gradient for gradient in found if gradient is not None]

    def step(self) -> None:
        """Turn the gradients into updates, or replay doing so."""
        with current(self._device):
            self._step()

    def _step(self) -> None:
        self.captured = self.captured or is_capturing()
        gradients = self._gradients()
        worked_on = [_in_one_piece(gradient) for gradient in gradients] if self._copies else gradients
        self._follow(worked_on)
        if self._options != [layer.checked for layer in self._layers]:
            self._options = [layer.checked for layer in self._layers]
            self.gate.follow_thresholds()
        if is_capturing() or self._device.type != "cuda" or self._steps < WARM_UP:
            self.gate.run()
        elif self._graph is None:
            self._graph = self._recorded()
        else:
            self._graph.replay()
        if self._copies:
            for gradient, outcome in zip(gradients, worked_on, strict=True):
                if outcome.data_ptr() != gradient.data_ptr():
                    in_memory_order(gradient).copy_(outcome)
        self._steps += 1

    def _follow(self, gradients: list[Tensor]) -> None:
        """Point the launches at where the gradients lie now: they read the addresses from tables, graph or not."""
        addresses = [gradient.data_ptr() for gradient in gradients]
        # A graph of somebody else's points at its own gradients whenever it is replayed.
        if addresses != self._addresses or self.captured:
            self.gate.point_at(addresses)
            self._addresses = addresses

    def _recorded(self) -> torch.cuda.CUDAGraph:
        """The launches of a step as one graph; the step itself is done by its first replay."""
        graph = torch.cuda.CUDAGraph()
        # A stream of its own: the one that torch would take is on the device of whoever captured first.
        stream = torch.cuda.Stream(self._device)
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            self.gate.run()
        graph.replay()
        return graph

    # -- Answers ---------------------------------------------------------------------------------------

    def look(self) -> list[str]:
        """Names of layers whose gradient was found not to be finite, without waiting: of some steps ago."""
        if self._looking is None:
            if self._steps and self._steps % LOOK_EVERY == 0:
                self._looking = _Answer(self.gate.broken)
            return []
        if not self._looking.is_there:
            return []
        answer, self._looking = self._looking, None
        return self._named(answer.values)

    def broken(self) -> list[str]:
        """Names of layers whose gradient was not finite in some step so far; waits for the device."""
        return self._named(self.gate.broken)

    def _named(self, flags: Tensor) -> list[str]:
        return [layer.name for layer, flag in zip(self._layers, flags.tolist(), strict=True) if flag]

    def mend(self) -> None:
        """Forget which gradients were not finite."""
        self.gate.broken.zero_()
        self._looking = None

    def seen(self) -> Seen:
        """What the last step saw and did, nothing if a gradient was not finite; waits for the device."""
        gate = self.gate
        if not gate.sound:
            return Seen({}, {}, {})
        table = torch.stack([gate.codes.double(), gate.cosines, gate.norms]).tolist()
        decisions, cosines, norms = {}, {}, {}
        for layer, code, cosine, norm in zip(self._layers, *table, strict=True):
            norms[layer.name] = norm
            if int(code) != ZERO:
                decisions[layer.name] = DECISIONS[int(code)]
                if len(layer.memory):
                    cosines[layer.name] = cosine
        return Seen(decisions, cosines, norms)

    def hand_over_counts(self) -> None:
        """Add to the counts of the layers what was counted on the device since the last time."""
        table = torch.cat([self.gate.counts, self.gate.turns[:, None]], dim=1).tolist()
        for layer, (*counts, turn) in zip(self._layers, table, strict=True):
            layer.memory.sampler.turn = turn
            for name, count in zip(COUNTED, counts, strict=True):
                layer.counts[name] += count
        self.gate.counts.zero_()


class _Answer:
    """Values on their way from the device."""

    def __init__(self, asked: Tensor) -> None:
        on_gpu = asked.device.type == "cuda"
        self.values = torch.empty(asked.shape, dtype=asked.dtype, device="cpu", pin_memory=on_gpu)
        self.values.copy_(asked, non_blocking=True)
        self._arrival = torch.cuda.Event() if on_gpu else None
        if self._arrival is not None:
            with current(asked.device):
                self._arrival.record()

    @property
    def is_there(self) -> bool:
        return self._arrival is None or self._arrival.query()


def _form(gradient: Tensor | None) -> object:
    if gradient is None or gradient.layout != torch.strided:
        return None if gradient is None else gradient.layout
    return gradient.shape, gradient.stride(), gradient.dtype, gradient.device, gradient.data_ptr() % ALIGNED_BYTES == 0


def _as_contiguous_matrices(layer: Layer, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
    return as_matrices(layer.memory.layouts, [None if g is None else _in_one_piece(g) for g in gradients])


def _in_one_piece(gradient: Tensor) -> Tensor:
    """The gradient as the kernels walk through it; a copy where it lies in no such order."""
    return in_memory_order(gradient).contiguous()
