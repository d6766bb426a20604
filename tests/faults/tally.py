"""How often an attack was tried and what held: counted by the tests, printed on docs/reliability.md."""

import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pytest
import torch

#: Where to append one JSON line an attack; unset, nothing is written.
TALLY = "SFAO_TALLY"
#: Set by `make soak`: attacks take their long form, or this share of it.
SOAK = "SFAO_SOAK"

#: The machine and what runs on it, as the page names them.
WHERE = (
    f"{os.cpu_count()} cores ({platform.system()}, {platform.machine()}), "
    f"torch {torch.__version__}, Python {platform.python_version()}"
)

Amount = TypeVar("Amount", int, float)
Item = TypeVar("Item")


def in_soak(short: Amount, long: Amount) -> Amount:
    """Return how much an attack does: the short amount among the tests, the long one, or a share of it, in a soak.

    An amount that is smaller in a soak, such as how many moments are left out, is that much larger in a share of it.
    """
    share = float(os.environ.get(SOAK) or 0)
    if not share:
        return short
    some = long * share if long > short else long / share
    between = max(short, some) if long > short else min(short, some)
    return type(long)(between)


#: In how many tests the longest attacks are made, so that several processes share them.
PARTS = in_soak(1, 16)
in_parts = pytest.mark.parametrize("part", range(PARTS))


def list_part(of: Sequence[Item], part: int) -> Sequence[Item]:
    """Return what one of the tests does of an attack in parts."""
    return of[part::PARTS]


@dataclass
class Attack:
    """One attack: what is attacked, what is done to it, and how it ended each time."""

    target: str
    what: str
    trials: int = 0
    broke: list[str] = field(default_factory=list)
    #: When it began, by a clock that nobody sets.
    began: float = field(default_factory=time.monotonic)

    def try_it(self, label: str, trial: Callable[[], None]) -> None:
        """Count one trial; one that raises an AssertionError broke, and is told at the end."""
        self.trials += 1
        try:
            trial()
        except AssertionError as error:
            self.broke.append(f"{label}: {error}")

    def count(self) -> dict[str, object]:
        """Return the attack as a line of the tally."""
        return {
            "target": self.target,
            "what": self.what,
            "trials": self.trials,
            "broke": len(self.broke),
            "soak": float(os.environ.get(SOAK) or 0),
            "seconds": round(time.monotonic() - self.began, 3),
            "where": WHERE,
        }

    def end(self) -> None:
        """Write the count down, and fail when anything broke or nothing was tried."""
        path = os.environ.get(TALLY)
        if path:
            with open(path, "a") as file:
                file.write(json.dumps(self.count()) + "\n")
        assert self.trials, f"nothing was tried: {self.what}"
        assert not self.broke, f"{len(self.broke)} of {self.trials} broke: " + "; ".join(self.broke[:5])
