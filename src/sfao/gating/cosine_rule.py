"""The rule of the paper: the largest cosine with a random few of the remembered directions, against two thresholds."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sfao.checks import is_number
from sfao.gating._state_checks import check_whole
from sfao.gating.rule import Rule

#: Turns drawn at a time, which cost little more than one.
DRAWS_AT_ONCE = 256


class Sampler:
    """Draws of some of a memory's directions, uniform, without replacement.

    A draw depends on the seed and on the number of draws before it, and on nothing else: a device that counts its
    steps draws the same (`layer_kernels.draw`), and the two numbers are all the state there is.
    """

    def __init__(self, seed: int, turn: int = 0) -> None:
        self.seed = seed % 2**63
        #: The number of draws so far.
        self.turn = turn
        self._of = (0, 0)
        self._first = 0
        self._draws = torch.empty(0, 0, dtype=torch.int64, device="cpu")

    def draw(self, count: int, samples: int) -> Tensor | slice:
        """An index of `samples` of `count` directions; a slice when that is all."""
        if samples >= count:
            return slice(None)
        if self._of != (count, samples) or not 0 <= self.turn - self._first < len(self._draws):
            draws = draw_distinct(self.seed, range(self.turn, self.turn + DRAWS_AT_ONCE), count, samples)
            self._of, self._first, self._draws = (count, samples), self.turn, draws
        self.turn += 1
        return self._draws[self.turn - 1 - self._first]

    def state_dict(self) -> dict[str, Any]:
        return {"seed": self.seed, "turn": self.turn}

    @staticmethod
    def from_state_dict(state: dict[str, Any]) -> "Sampler":
        return Sampler(*(check_whole(f"memory/sampler/{name}", state[name]) for name in ("seed", "turn")))


def draw_distinct(seed: int, turns: range, count: int, samples: int) -> Tensor:
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


# Also compiled for devices (see `Rule`). The inequalities of the paper are strict, so the edges at -1 are spelled out:
# accepting above -1 always accepts, discarding below -1 never discards. With `strict` (not 0), nothing is accepted that
# points against one of the directions.
def judge(largest, smallest, accept_above, discard_below, strict, unused, first, second):  # type: ignore[no-untyped-def]
    """Return whether to accept and whether else to project; the thresholds are lambda_accept and lambda_proj."""
    accepts = ((largest > accept_above) | (accept_above == -1)) & ((strict == 0) | (smallest >= 0))
    projects = (largest > discard_below) | (discard_below == -1)
    return accepts, projects, first, second


def check_thresholds(options: Mapping[str, Any]) -> None:
    """Raise a ValueError that names the first option whose value breaks its rule."""
    for name in ("accept_above", "discard_below"):
        if not (is_number(options[name]) and -1 <= options[name] <= 1):
            raise ValueError(f"`{name}` must be in [-1, 1], got {options[name]!r}")
    if options["discard_below"] > options["accept_above"]:
        raise ValueError(
            f"`discard_below` must not exceed `accept_above` ({options['accept_above']}), "
            f"got {options['discard_below']}"
        )
    if not isinstance(options["strict"], bool):
        raise ValueError(f"`strict` must be True or False, got {options['strict']!r}")


COSINE_RULE = Rule({"accept_above": 0.85, "discard_below": -1e-4, "strict": False}, check_thresholds, judge)
