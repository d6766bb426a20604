"""The choice between the host and the device, and the reasons against the device."""

import warnings
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec

import torch

from sfao.gating.projection import PROJECTIONS
from sfao.optim import _gate_path as gate_path
from sfao.optim._device_path import DevicePath, make_current
from sfao.optim._gate_path import Path, make_capture_error
from sfao.optim._host_path import HostPath, LayerGradient, find_gradients, follow_gradient
from sfao.optim.layers import Layer

#: The first compute capability with the tensor cores that the kernels count on.
CAPABILITY = (8, 0)


def choose_path(layers: list[Layer], before: Path) -> Path:
    """Return the path for the gradients that the layers have now, after `before`, which is closed."""
    if gate_path.is_capturing():
        raise make_capture_error()
    before.close()
    found = find_gradients(layers)
    obstacle = find_obstacle(found)
    if obstacle is not None:
        if obstacle and obstacle not in before.history.reasons:
            before.history.reasons.add(obstacle)
            warnings.warn(f"gated on the host, which is slower: {obstacle}", RuntimeWarning, stacklevel=5)
        return HostPath(layers, before.history, before.report())
    for layer, gradient in found:
        if len(layer.memory) and gradient.present:
            follow_gradient(layer, gradient)
    return DevicePath(layers, found, before.history)


def find_obstacle(found: Sequence[tuple[Layer, LayerGradient]]) -> str | None:
    """Return why these gradients cannot be gated on the device; "" when they are on none, None when they can."""
    gradients = [gradient for _, layer_gradient in found for gradient in layer_gradient.present]
    devices = {gradient.device for gradient in gradients}
    if not gradients or not any(device.type in gate_path.DEVICES for device in devices):
        return ""
    if len(devices) > 1:
        return f"the gradients are on several devices ({', '.join(sorted(map(str, devices)))})"
    if any(gradient.dtype != torch.float32 for gradient in gradients):
        return "the gradients are not all float32"
    for layer, _ in found:
        kind = layer.options["projection"]
        if not PROJECTIONS[kind].is_linear:
            return f"the {kind} projection is solved step by step"
        for block in layer.memory.blocks:
            if block.kernel_tensors is None:
                return f"no kernel reads the {block.kind} storage"
    if len({layer.options["rule"] for layer, _ in found}) > 1:
        return "the layers do not share one rule"
    return _find_lack(next(iter(devices)))


@cache
def _find_lack(device: torch.device) -> str | None:
    if find_spec("triton") is None:
        return "Triton is not installed"
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < CAPABILITY:
        return f"its compute capability is below {'.'.join(map(str, CAPABILITY))}"
    return _find_failure(device)


def _find_failure(device: torch.device) -> str | None:
    """Return the reason why the smallest kernel fails: Triton needs a C compiler, a new enough driver, a cache."""
    try:
        from sfao.gating._device.addresses import Addresses

        with make_current(device):
            Addresses([torch.zeros(1, device=device)])
    except Exception as error:
        return f"Triton cannot run here ({str(error).strip().partition(chr(10))[0]})"
    return None
