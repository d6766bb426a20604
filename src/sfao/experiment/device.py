"""Devices by name."""

import torch


def usable_device(name: str) -> torch.device:
    """The device, if this machine has it; a ValueError that says so otherwise."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # which `meta` cannot do
    except (AssertionError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"`device` must be one that this machine has, got {name!r}: {reason}") from error
    return device
