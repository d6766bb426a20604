"""The paper's decision: accept, project or discard a gradient, by its cosines with sampled directions."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

#: Draws made at a time; one costs nearly as much.
DRAWS_AT_ONCE = 256


class Decision(StrEnum):
    """The decision on the gradient of one layer at one step.

    Example::

        >>> optimizer.last_decisions["0"] is Decision.PROJECT
    """

    ACCEPT = "accept"
    PROJECT = "project"
    DISCARD = "discard"


#: Names under which steps are counted. A zero gradient leaves nothing to decide.
COUNTED = (*(str(decision) for decision in Decision), "zero")


@dataclass(frozen=True)
class Outcome:
    """The outcome of one step, by layer; cosines, shares and samples only of layers with directions."""

    decisions: dict[str, Decision] = field(default_factory=dict)
    #: The largest sampled cosine.
    cosines: dict[str, float] = field(default_factory=dict)
    #: |u| / |g|, the share of the gradient's norm that is left.
    kept: dict[str, float] = field(default_factory=dict)
    #: The sampled directions, None for all.
    samples: dict[str, Tensor | None] = field(default_factory=dict)


class NonFiniteGradient(ValueError):  # noqa: N818, it names what was found
    """A gradient with NaN or infinite entries: training has diverged."""


def decide(
    largest: float, smallest: float, accept_above: float, discard_below: float, strict: bool = False
) -> Decision:
    """Return the decision on a gradient, given its largest and smallest cosine with the sampled directions.

    The paper's inequalities are strict, so the ends are special: `accept_above=-1` always accepts, and
    `discard_below=-1` never discards.

    Args:
        largest: the cosine s that is compared with the thresholds.
        smallest: the smallest signed cosine. With `strict`, a negative one prevents acceptance.
        accept_above: lambda_accept of the paper.
        discard_below: lambda_proj of the paper.
    """
    if (largest > accept_above or accept_above == -1) and (not strict or smallest >= 0):
        return Decision.ACCEPT
    if largest > discard_below or discard_below == -1:
        return Decision.PROJECT
    return Decision.DISCARD


class Sampler:
    """Draws of some of a memory's directions, uniform, without replacement.

    A draw depends only on the seed and on the number of draws before it: these two numbers are its whole state.

    Args:
        seed: any whole number.
        turn: the number of draws so far.
    """

    def __init__(self, seed: int, turn: int = 0) -> None:
        self.seed = seed % 2**63
        self.turn = turn
        self._drawn_for = (0, 0)
        self._first = 0
        self._draws = torch.empty(0, 0, dtype=torch.int64, device="cpu")

    def peek(self, count: int, samples: int) -> Tensor | None:
        """Return the next draw of `samples` of `count` directions, None for all of them; `turn` stays."""
        if samples >= count:
            return None
        if self._drawn_for != (count, samples) or not 0 <= self.turn - self._first < len(self._draws):
            draws = draw_distinct(self.seed, range(self.turn, self.turn + DRAWS_AT_ONCE), count, samples)
            self._drawn_for, self._first, self._draws = (count, samples), self.turn, draws
        return self._draws[self.turn - self._first]


def draw_distinct(seed: int, turns: range, count: int, samples: int) -> Tensor:
    """Return a row of `samples` different numbers below `count` for each turn, all sets equally likely (Floyd 1987)."""
    seeds, turn = torch.tensor(seed, device="cpu"), torch.arange(turns.start, turns.stop, device="cpu")
    chosen = torch.empty(len(turns), samples, dtype=torch.int64, device="cpu")
    for place, largest in enumerate(range(count - samples, count)):
        drawn = number_below(seeds, turn, place, largest + 1)
        taken = (chosen[:, :place] == drawn[:, None]).any(1)
        chosen[:, place] = torch.where(taken, largest, drawn)
    return chosen


def number_below(seed: Any, turn: Any, place: int, bound: int) -> Any:
    """Return pseudorandom numbers from 0 to bound - 1.

    The finalizer of SplitMix64 (Steele et al. 2014), twice, in 64-bit arithmetic that wraps around. The masks make
    the shifts logical.
    """
    x = seed + turn * -7046029254386353131
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    x = (x ^ ((x >> 31) & 0x1FFFFFFFF)) + place
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    x = x ^ ((x >> 31) & 0x1FFFFFFFF)
    return (((x >> 32) & 0xFFFFFFFF) * bound) >> 32
