"""The scale of a reproduction: all of the data, a fraction of it, or a quick look that learns faster instead."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sfao.lab.run.config import RunConfig

#: The share of the data of a quick look, and how many times faster it learns at most: with less of both it would only
#: show networks that have not learnt yet, with a higher rate they would diverge.
QUICK_FRACTION, MOST_HASTE = 0.1, 10.0
#: The model that a quick look trains in the place of a large one, which a CPU would train for days.
SMALL_MODELS: dict[str, dict[str, Any]] = {
    "wrn-28-10": {"name": "sfao.lab.models:wide_resnet", "depth": 10, "widen": 1},
}


@dataclass(frozen=True)
class Scale:
    """The share of the training data that runs learn from; `is_quick`: at a higher rate, and with a smaller model."""

    fraction: float = 1.0
    is_quick: bool = False

    @property
    def haste(self) -> float:
        """The factor of the learning rate: the path of plain descent is as long as on all data."""
        return min(1 / self.fraction, MOST_HASTE) if self.is_quick else 1.0

    @property
    def parts(self) -> list[str]:
        """The parts of a folder's or a file's name by which results of this scale are told from those on all data."""
        named = ["quick"] if self.is_quick else []
        is_usual = self.fraction == (QUICK_FRACTION if self.is_quick else 1.0)
        return named if is_usual else [*named, f"fraction{self.fraction:g}"]

    def change(self, config: RunConfig) -> dict[str, Any]:
        """Return the settings that this scale changes of a run on all data."""
        changed: dict[str, Any] = {"fraction": self.fraction}
        if self.is_quick:
            changed["lr"] = config.lr * self.haste
            small = SMALL_MODELS.get(config.model.name, {})
            changed |= {f"model.{name}": value for name, value in small.items()}
        return changed

    def describe(self, models: Iterable[str]) -> str:
        """Return a sentence on what a quick look with these models is; empty for any other scale."""
        if not self.is_quick:
            return ""
        large = ", ".join(f"a small one in the place of {name}" for name in models if name in SMALL_MODELS)
        return (
            f"Quick: {self.fraction:.3g} of the training data at {self.haste:g} times the learning rate"
            f"{f', {large}' if large else ''}: a look, no result. What stores the gradients of batches holds fewer of "
            "them, and then protects otherwise than on all data."
        )


WHOLE = Scale()
