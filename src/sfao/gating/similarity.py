"""Cosines between a gradient and a sample of the remembered directions."""

from typing import Any

import torch
from torch import Tensor

DRAWS_AT_ONCE = 256


class Sampler:
    """Draws of some of a memory's directions, uniform, without replacement.

    What is drawn depends on the seed and on how many draws came before, and on nothing else: a device that counts its
    steps draws the same (`layer_kernels.draw`), and the two numbers are all the state there is.
    """

    def __init__(self, seed: int, turn: int = 0) -> None:
        self.seed = seed % 2**63
        #: How many draws came before.
        self.turn = turn
        self._of = (0, 0)
        self._first = 0
        self._draws = torch.empty(0, 0, dtype=torch.int64, device="cpu")

    def draw(self, count: int, samples: int) -> Tensor | slice:
        """An index of `samples` of `count` directions; a slice when that is all."""
        if samples >= count:
            return slice(None)
        if self._of != (count, samples) or not 0 <= self.turn - self._first < len(self._draws):
            self._of, self._first = (count, samples), self.turn
            # Many turns at a time cost little more than one.
            self._draws = distinct(self.seed, range(self.turn, self.turn + DRAWS_AT_ONCE), count, samples)
        self.turn += 1
        return self._draws[self.turn - 1 - self._first]

    def state_dict(self) -> dict[str, Any]:
        return {"seed": self.seed, "turn": self.turn}

    @staticmethod
    def from_state_dict(state: dict[str, Any]) -> "Sampler":
        return Sampler(state["seed"], state["turn"])


def distinct(seed: int, turns: range, count: int, samples: int) -> Tensor:
    """A row of `samples` different numbers below `count` for each turn, all sets as likely (Floyd 1987)."""
    seeds, turn = torch.tensor(seed, device="cpu"), torch.arange(turns.start, turns.stop, device="cpu")
    chosen = torch.empty(len(turns), samples, dtype=torch.int64, device="cpu")
    for place, largest in enumerate(range(count - samples, count)):
        drawn = number_below(seeds, turn, place, largest + 1)  # type: ignore[no-untyped-call]
        taken = (chosen[:, :place] == drawn[:, None]).any(1)
        chosen[:, place] = torch.where(taken, largest, drawn)
    return chosen


def number_below(seed, turn, place, bound):  # type: ignore[no-untyped-def]
    """A number from 0 to bound - 1, as good as random, of whole numbers of 64 bits that wrap around.

    The finalizer of SplitMix64 (Steele et al. 2014), twice. The kernels compile this very function: hence no types, no
    names of constants, and masks that make the shifts logical.
    """
    x = seed + turn * -7046029254386353131
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    x = (x ^ ((x >> 31) & 0x1FFFFFFFF)) + place
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    x = x ^ ((x >> 31) & 0x1FFFFFFFF)
    return (((x >> 32) & 0xFFFFFFFF) * bound) >> 32


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
