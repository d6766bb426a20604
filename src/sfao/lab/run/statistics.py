"""Statistics of a handful of seeds: spread, confidence interval, paired test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean

from scipy.special import stdtr, stdtrit  # Student's t; scipy.stats has it too, and takes a second to import

CONFIDENCE = 0.95
#: Accuracies are quotients of counts: differences of this size are rounding.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Spread:
    """Mean of n values; standard deviation (n - 1) and t-interval, which one value alone does not have."""

    n: int
    mean: float
    std: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class PairedTest:
    """Two-sided paired t-test: are the differences to `against`, seed by seed, zero on average?"""

    against: str
    n: int
    difference: float | None
    p: float | None
    #: The reason why there is no p value; empty when there is one.
    reason: str = ""


def standard_deviation(values: Sequence[float]) -> float | None:
    """Return the standard deviation of the sample (ddof 1); None for fewer than two values."""
    if len(values) < 2:
        return None
    mean = fmean(values)
    return sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def spread(values: Sequence[float]) -> Spread:
    if not values:
        raise ValueError("`values` must hold at least one number, got none")
    n, mean, std = len(values), fmean(values), standard_deviation(values)
    if std is None:
        return Spread(n, mean, None, None, None)
    half = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * std / sqrt(n)
    return Spread(n, mean, std, mean - half, mean + half)


def paired_test(ours: Mapping[int, float], theirs: Mapping[int, float], against: str) -> PairedTest:
    """Test {seed: value} against {seed: value}, on the seeds that both have."""
    differences = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
    n, std = len(differences), standard_deviation(differences)
    if std is None:
        difference = differences[0] if differences else None
        return PairedTest(against, n, difference, None, f"{n} common seed{'s' * (n != 1)}, a test needs 2")
    difference = fmean(differences)
    if std > ROUNDING:
        t = difference / (std / sqrt(n))
        return PairedTest(against, n, difference, 2 * float(stdtr(n - 1, -abs(t))))
    if abs(difference) <= ROUNDING:
        return PairedTest(against, n, 0.0, 1.0)
    # Without any spread the statistic is infinite: p = 0 would claim more than a few seeds can say.
    return PairedTest(against, n, difference, None, "the difference is the same for every seed")
