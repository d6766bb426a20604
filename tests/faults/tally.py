"""How often an attack was tried and what held: counted by the tests, printed on docs/reliability.md."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TypeVar

#: Where to append one JSON line an attack; unset, nothing is written.
TALLY = "SFAO_TALLY"
#: Set by `make soak`: attacks take their long form.
SOAK = "SFAO_SOAK"

Amount = TypeVar("Amount", int, float)


def in_soak(short: Amount, long: Amount) -> Amount:
    """Return how much an attack does: the short amount among the tests, the long one under `make soak`."""
    return long if os.environ.get(SOAK) else short


@dataclass
class Attack:
    """One attack: what is attacked, what is done to it, and how it ended each time."""

    target: str
    what: str
    trials: int = 0
    broke: list[str] = field(default_factory=list)

    def try_it(self, label: str, trial: Callable[[], None]) -> None:
        """Count one trial; one that raises an AssertionError broke, and is told at the end."""
        self.trials += 1
        try:
            trial()
        except AssertionError as error:
            self.broke.append(f"{label}: {error}")

    def end(self) -> None:
        """Write the count down, and fail when anything broke or nothing was tried."""
        path = os.environ.get(TALLY)
        if path:
            with open(path, "a") as file:
                file.write(json.dumps({**asdict(self), "broke": len(self.broke)}) + "\n")
        assert self.trials, f"nothing was tried: {self.what}"
        assert not self.broke, f"{len(self.broke)} of {self.trials} broke: " + "; ".join(self.broke[:5])
