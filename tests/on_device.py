"""Where the gate's kernels run in tests: on a GPU, or without one on the CPU, in Triton's interpreter.

To be imported by a test module before anything else imports Triton, which decides once whether it interprets.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

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


def patch_once(function: FunctionType) -> Any:
    """Prepare Triton's language for its interpreter, unless it is prepared.

    The interpreter does so at every call inside a kernel too, which takes a third of its time.
    """
    from triton import language
    from triton.runtime import interpreter

    modules = [value for value in function.__globals__.values() if isinstance(value, ModuleType)]
    used = [module for module in modules if module in (language, language.core)]
    if any(language.core.is_builtin(module.load) for module in used):
        return patch_language(function)
    return interpreter._LangPatchScope()


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
    from triton.runtime import interpreter

    from sfao.gating._device import engine, entry_kernels

if not HAS_GPU:
    patch_language = interpreter._patch_lang
    interpreter._patch_lang = patch_once

__all__ = ["DEVICE", "HAS_GPU", "engine", "entry_kernels", "gated_on", "interpreted"]
