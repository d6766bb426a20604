"""Train one network on a sequence of tasks with less forgetting, without storing old data."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfao.decision import Decision, NonFiniteGradient
    from sfao.drift_bound import DriftBound
    from sfao.gate import Gate
    from sfao.layers import layer_groups
    from sfao.optimizer import SFAO

__version__ = "0.2.0"

__all__ = ["SFAO", "Decision", "DriftBound", "Gate", "NonFiniteGradient", "__version__", "layer_groups"]

# Imported when first used: `sfao --help` must not wait for torch.
_HOMES = {
    "SFAO": "sfao.optimizer",
    "Decision": "sfao.decision",
    "DriftBound": "sfao.drift_bound",
    "Gate": "sfao.gate",
    "NonFiniteGradient": "sfao.decision",
    "layer_groups": "sfao.layers",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
