"""Devices by name."""

import torch


def usable_device(name: str) -> torch.device:
    """Return the device, or raise a ValueError if this machine does not have it."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # fails on `meta`
    except (AssertionError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"`device` must be one that this machine has, got {name!r}: {reason}") from error
    return device
