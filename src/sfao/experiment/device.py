"""Devices by name."""

import torch

from sfao.experiment.determinism import prepare_cublas


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
