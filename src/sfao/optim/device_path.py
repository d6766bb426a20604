"""The gate's steps on an accelerator: made ready once, launched or replayed every step, read when somebody asks."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sfao.gating.block import ALIGNED_BYTES
from sfao.gating.decision import COUNTED, DECISIONS, ZERO, Decision
from sfao.gating.similarity import draw
from sfao.gating.transfer import send
from sfao.optim.gradients import LayerGradient
from sfao.optim.layers import Layer

if TYPE_CHECKING:
    pass

#: Where kernels run. (Under Triton's interpreter they run on a CPU, which is how they are tested without a GPU.)
DEVICES = {"cuda"}
#: The first compute capability with the tensor cores that the kernels count on.
CAPABILITY = (8, 0)
#: Steps between looks at whether a gradient was not finite.
LOOK_EVERY = 32
#: Steps before the launches, compiled by then, are captured as a graph.
WARM_UP = 2

Found = Sequence[tuple[Layer, LayerGradient]]


@dataclass(frozen=True)
class Seen:
    """What a step saw and did, by layer."""

    decisions: dict[str, Decision]
    cosines: dict[str, float]
    norms: dict[str, float]


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
    return None


class DevicePath:
    """The device gate over these layers, and how its launches, samples and answers travel."""

    def __init__(self, found: Found) -> None:
        from sfao.gating.device.engine import DeviceGate, Member

        self.key = path_key(found)
        self._layers = [layer for layer, _ in found]
        members = [Member(layer.memory, layer.options, gradient.matrices()) for layer, gradient in found]
        self.gate: DeviceGate = DeviceGate(members)
        self._addresses: tuple[int, ...] = ()
        self._graph: torch.cuda.CUDAGraph | None = None
        self._steps = 0
        self._thresholds = self.gate.new_thresholds()
        self._sample = self.gate.sample.cpu()
        self._looking: tuple[Tensor, torch.cuda.Event] | None = None

    # -- Every step ------------------------------------------------------------------------------------

    def step(self, found: Found) -> None:
        """Turn the gradients into updates, or replay doing so."""
        gradients = [gradient for _, layer_gradient in found for gradient in layer_gradient.contiguous()]
        self._follow(gradients)
        self._send_thresholds()
        if self.gate.samples:
            self._send_sample()
        if self._graph is not None:
            self._graph.replay()
        elif self._steps >= WARM_UP and _capturable(self.gate.device):
            self._graph = self._captured()
        else:
            self.gate.run()
        for (_, layer_gradient), moved in zip(found, _dealt(gradients, found), strict=True):
            layer_gradient.take_back(moved)
        self._steps += 1

    def _follow(self, gradients: list[Tensor]) -> None:
        """Point the launches at where the gradients lie now: they read the addresses from tables, graph or not."""
        addresses = tuple(gradient.data_ptr() for gradient in gradients)
        if addresses != self._addresses:
            self.gate.point_at(addresses)
            self._addresses = addresses

    def _captured(self) -> torch.cuda.CUDAGraph:
        """The launches of a step as one graph; the step itself is done by its first replay."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self.gate.run()
        graph.replay()
        return graph

    def _send_thresholds(self) -> None:
        thresholds = self.gate.new_thresholds()
        if not torch.equal(thresholds, self._thresholds):
            self._thresholds = thresholds
            send(thresholds, self.gate.thresholds)

    def _send_sample(self) -> None:
        for row, layer in enumerate(self._layers):
            drawn = draw(len(layer.memory), layer.options["samples"], layer.memory.generator)
            if isinstance(drawn, Tensor):
                self._sample[row, : len(drawn)] = drawn
        send(self._sample, self.gate.sample)

    # -- Answers ---------------------------------------------------------------------------------------

    def look(self) -> list[str]:
        """Names of layers whose gradient was found not to be finite, without waiting: of some steps ago."""
        if self._looking is None:
            if self._steps % LOOK_EVERY == 0 and self.gate.device.type == "cuda":
                answer = torch.empty(len(self._layers), dtype=torch.bool, pin_memory=True)
                answer.copy_(self.gate.broken, non_blocking=True)
                event = torch.cuda.Event()
                event.record()
                self._looking = answer, event
            return [] if self.gate.device.type == "cuda" else self.broken()
        answer, event = self._looking
        if not event.query():
            return []
        self._looking = None
        return self._named(answer)

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
        """What the last step saw and did; waits for the device."""
        gate = self.gate
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
        for layer, counts in zip(self._layers, self.gate.counts.tolist(), strict=True):
            for name, count in zip(COUNTED, counts, strict=True):
                layer.counts[name] += count
        self.gate.counts.zero_()


def path_key(found: Found) -> tuple[object, ...]:
    """Equal as long as a device path made for these layers serves them."""
    return tuple(
        (
            layer.name,
            layer.memory.version,
            id(layer.memory),
            *(layer.options[name] for name in ("samples", "cosine", "projection")),
            *(_alignment(gradient) for gradient in layer_gradient.gradients),
        )
        for layer, layer_gradient in found
    )


def _alignment(gradient: Tensor | None) -> bool | None:
    return None if gradient is None else gradient.data_ptr() % ALIGNED_BYTES == 0


def _dealt(gradients: list[Tensor], found: Found) -> list[list[Tensor]]:
    remaining = iter(gradients)
    return [[next(remaining) for _ in layer_gradient.present] for _, layer_gradient in found]


def _capturable(device: torch.device) -> bool:
    return device.type == "cuda" and not torch.cuda.is_current_stream_capturing()
