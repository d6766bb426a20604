"""Selective Forgetting-Aware Optimization: an optimizer that remembers what not to overwrite."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfao.gating.decision import Decision
    from sfao.optim._gate_path import NonFiniteGradient
    from sfao.optim.gate import Gate
    from sfao.optim.layers import layer_groups
    from sfao.optim.sfao import SFAO

__version__ = "0.1.0"

__all__ = ["SFAO", "Decision", "Gate", "NonFiniteGradient", "__version__", "layer_groups"]

# Imported when first used: `sfao --help` must not wait for torch.
_HOMES = {
    "SFAO": "sfao.optim.sfao",
    "Decision": "sfao.gating.decision",
    "Gate": "sfao.optim.gate",
    "NonFiniteGradient": "sfao.optim._gate_path",
    "layer_groups": "sfao.optim.layers",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
