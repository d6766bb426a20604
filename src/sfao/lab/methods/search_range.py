"""Ranges and choices: where `sfao tune` looks for the value of an option."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`; with `log`, each order of magnitude is as likely as another."""

    low: float
    high: float
    log: bool = False

    def __str__(self) -> str:
        return f"{self.low:.15g}:{self.high:.15g}{':log' * self.log}"

    @property
    def examples(self) -> tuple[float, ...]:
        """The values to check before anything runs: what is right at both ends is right between them."""
        return self.low, self.high


@dataclass(frozen=True)
class Choice:
    """One of a few values."""

    values: tuple[str | float | bool | None, ...]

    def __str__(self) -> str:
        return ",".join(map(str, self.values))

    @property
    def examples(self) -> tuple[str | float | bool | None, ...]:
        return self.values


#: {name of an option: where to look for its value}
SearchSpace = dict[str, Range | Choice]
