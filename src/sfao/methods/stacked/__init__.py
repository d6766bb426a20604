"""The methods whose runs can be stacked, by name."""

from sfao.methods.stacked.gpm import StackedGPM
from sfao.methods.stacked.method import StackedMethod, StackReport
from sfao.methods.stacked.penalty import StackedPenalty, StackedSI
from sfao.methods.stacked.sfao import StackedSFAO

__all__ = ["STACKED", "StackReport", "StackedMethod"]

STACKED: dict[str, type[StackedMethod]] = {
    "sgd": StackedMethod,
    "ewc": StackedPenalty,
    "si": StackedSI,
    "gpm": StackedGPM,
    "sfao": StackedSFAO,
}
