"""Where the gate's kernels run in tests: on a GPU, or without one on the CPU, in Triton's interpreter.

To be imported by a test module before anything else imports Triton, which decides once whether it interprets.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from sfao.optim import _choose_path as choose_path
from sfao.optim import _gate_path as gate_path

HAS_GPU = torch.cuda.is_available() and torch.cuda.get_device_capability() >= choose_path.CAPABILITY
DEVICE = torch.device("cuda" if HAS_GPU else "cpu")


@contextmanager
def interpreted() -> Iterator[None]:
    """Let kernels run here, without a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        if not HAS_GPU:
            patch.setenv("TRITON_INTERPRET", "1")
        yield


@contextmanager
def gated_on(*devices: str) -> Iterator[None]:
    """Let gradients on these kinds of device be gated there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate_path, "DEVICES", set(devices))
        yield


if "triton" in sys.modules and "sfao.gating._device.entry_kernels" not in sys.modules and not HAS_GPU:
    raise RuntimeError("Triton was imported before it was told to interpret")
with interpreted():
    pytest.importorskip("triton")
    from sfao.gating._device import engine, entry_kernels
    from tests import quick_interpreter

if not HAS_GPU:
    quick_interpreter.hasten()

__all__ = ["DEVICE", "HAS_GPU", "engine", "entry_kernels", "gated_on", "interpreted"]
