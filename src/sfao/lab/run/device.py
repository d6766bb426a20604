"""Devices by name, and models on them."""

import torch
from torch import nn

from sfao.lab.run.determinism import prepare_cublas


def usable_device(name: str, deterministic: bool = False) -> torch.device:
    """Return the device, or raise a ValueError if this machine does not have it, or not for deterministic runs."""
    if deterministic and name.startswith("cuda"):
        prepare_cublas()
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # fails on `meta`
    except (AssertionError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"`device` must be one that this machine has, got {name!r}: {reason}") from error
    return device


def place_model(model: nn.Module, device: torch.device, *, is_own: bool) -> nn.Module:
    """Return the model on the device; on a GPU our own have their channels last, which its kernels want.

    A user's model may count on the other order: `x.view(len(x), -1)` after a convolution does.
    """
    if is_own and device.type == "cuda":
        return model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]
    return model.to(device)
