"""Cosines between a gradient and a sample of the remembered directions."""

from typing import Any

import torch
from torch import Tensor

DRAWS_AT_ONCE = 256


class Sampler:
    """Draws of some of a memory's directions, uniform, without replacement; many steps at a time, which costs little.

    A generator of its own, so that where it was before the draws at hand, and how many are used, is all its state.
    """

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._before = self._generator.get_state()
        self._of = (0, 0)
        self._used = 0
        self._draws = torch.empty(0, 0, dtype=torch.int64)

    def draw(self, count: int, samples: int) -> Tensor | slice:
        """An index of `samples` of `count` directions; a slice when that is all."""
        if samples >= count:
            return slice(None)
        if self._of != (count, samples) or self._used == len(self._draws):
            self._refill(count, samples)
        self._used += 1
        return self._draws[self._used - 1]

    def _refill(self, count: int, samples: int) -> None:
        self._before = self._generator.get_state()
        self._of, self._used = (count, samples), 0
        self._draws = distinct(DRAWS_AT_ONCE, count, samples, self._generator)

    def state_dict(self) -> dict[str, Any]:
        return {"before": self._before, "of": list(self._of), "used": self._used}

    @staticmethod
    def from_state_dict(state: dict[str, Any]) -> "Sampler":
        sampler = Sampler(0)
        sampler._generator.set_state(state["before"].cpu())
        sampler._before = sampler._generator.get_state()
        count, samples = state["of"]
        if samples:
            sampler._refill(count, samples)
            sampler._used = state["used"]
        return sampler


def distinct(draws: int, count: int, samples: int, generator: torch.Generator) -> Tensor:
    """Rows of `samples` different numbers below `count`, every set of them as likely as any other (Floyd 1987)."""
    chosen = torch.empty(draws, samples, dtype=torch.int64)
    for place, largest in enumerate(range(count - samples, count)):
        drawn = torch.randint(largest + 1, (draws,), generator=generator)
        taken = (chosen[:, :place] == drawn[:, None]).any(1)
        chosen[:, place] = torch.where(taken, largest, drawn)
    return chosen


def extreme_cosines(dots: Tensor, inverse_norms: Tensor, norm: float, kind: str) -> tuple[float, float]:
    """The largest cosine, signed or absolute, and the smallest signed one.

    From inner products of a gradient of this norm with directions of these norms. Rounding can push the
    quotient past 1, where no threshold may see it. With no direction at all, everything agrees.
    """
    if len(dots) == 0:
        return 1.0, 1.0
    least, most = torch.aminmax(dots * inverse_norms)
    smallest = min(max(float(least) / norm, -1.0), 1.0)
    largest = min(max(float(most) / norm, -1.0), 1.0)
    return (max(largest, -smallest) if kind == "absolute" else largest), smallest
