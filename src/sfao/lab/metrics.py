"""Metrics of continual learning, from the full accuracy matrix, and their statistics over seeds.

`matrix[t][i]` is the accuracy on task i, in [0, 1], after learning task t: T rows, T columns, the tasks still to
come included. `initial[i]` is the accuracy on task i before any learning. Nested lists, numpy arrays and torch
tensors are all taken. A stream of one task forgets and transfers nothing: these metrics are then 0.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean

from scipy.special import stdtr, stdtrit  # Student's t; scipy.stats has it too, and takes a second to import

Matrix = Iterable[Iterable[float]]
CONFIDENCE = 0.95
#: Accuracies are quotients of counts: differences of this size are rounding.
ROUNDING = 1e-12


def average_accuracy(matrix: Matrix) -> float:
    """Mean accuracy over all tasks, after the last one."""
    return fmean(_check_matrix(matrix)[-1])


def accuracy_when_learnt(matrix: Matrix) -> float:
    """Mean accuracy over all tasks, each measured just after it was learnt: the diagonal."""
    return fmean(row[task] for task, row in enumerate(_check_matrix(matrix)))


def forgetting_per_task(matrix: Matrix) -> list[float]:
    """F_i of the paper for every task but the last: the best accuracy ever measured minus the final one.

    The maximum runs over every row t <= T, as printed: the last row is one of them, so F_i is never negative,
    and so are the rows before task i was learnt, so accuracy that an earlier task brought along can be
    forgotten too.
    """
    rows = _check_matrix(matrix)
    return [max(row[task] for row in rows) - rows[-1][task] for task in range(len(rows) - 1)]


def average_forgetting(matrix: Matrix) -> float:
    """F of the paper: the mean of `forgetting_per_task`."""
    return _mean(forgetting_per_task(matrix))


def average_forgetting_released(matrix: Matrix) -> float:
    """F as the released code computes it: the maximum leaves out the last row, so a task can gain (F_i < 0).

    That code never evaluates a task before it is learnt (its matrix holds 0 there), so those rows stay out too.
    """
    rows = _check_matrix(matrix)
    last = len(rows) - 1
    return _mean([max(row[task] for row in rows[task:last]) - rows[last][task] for task in range(last)])


def backward_transfer(matrix: Matrix) -> float:
    """Mean change of a task's accuracy from when it was learnt to the end; negative when tasks are forgotten."""
    rows = _check_matrix(matrix)
    return _mean([rows[-1][task] - rows[task][task] for task in range(len(rows) - 1)])


def forward_transfer(matrix: Matrix, initial: Iterable[float]) -> float:
    """Mean accuracy that a task already has just before it is learnt, over that of the random initialisation."""
    rows = _check_matrix(matrix)
    before = [float(accuracy) for accuracy in initial]
    if len(before) != len(rows):
        raise ValueError(f"`initial` must hold one accuracy a task ({len(rows)}), got {len(before)}")
    _check_accuracies("initial", before)
    return _mean([rows[task - 1][task] - before[task] for task in range(1, len(rows))])


def psm(matrix: Matrix) -> float:
    """The plasticity-stability measure as the paper prints it: (A_final + A_avg) / 2.

    A_final is the final accuracy on the last task, A_avg the average accuracy over all tasks.
    """
    rows = _check_matrix(matrix)
    return (rows[-1][-1] + fmean(rows[-1])) / 2


def psm_released(matrix: Matrix) -> float:
    """The plasticity-stability measure as the released code computes it, whose numbers the paper's table holds.

    Its formula is (1 - F) / 2 + max(FWT, 0) / 2, but its FWT reads cells that were never filled and is always 0.
    """
    return (1 - average_forgetting_released(matrix)) / 2


def summary(matrix: Matrix, initial: Iterable[float]) -> dict[str, float]:
    """The metrics that a record holds, by name."""
    rows = _check_matrix(matrix)
    return {
        "average_accuracy": average_accuracy(rows),
        "average_forgetting": average_forgetting(rows),
        "backward_transfer": backward_transfer(rows),
        "forward_transfer": forward_transfer(rows, initial),
        "psm": psm(rows),
        "psm_released": psm_released(rows),
    }


def _check_matrix(matrix: Matrix) -> list[list[float]]:
    rows = [[float(accuracy) for accuracy in row] for row in matrix]
    if not rows or any(len(row) != len(rows) for row in rows):
        raise ValueError(
            "`matrix` must be square, a row and a column for every task, "
            f"got {len(rows)} rows of {sorted({len(row) for row in rows})} columns"
        )
    for task, row in enumerate(rows):
        _check_accuracies(f"matrix[{task}]", row)
    return rows


def _check_accuracies(name: str, accuracies: list[float]) -> None:
    for accuracy in accuracies:
        if not 0 <= accuracy <= 1:
            raise ValueError(f"`{name}` must hold accuracies in [0, 1], got {accuracy}")


def _mean(values: list[float]) -> float:
    return fmean(values) if values else 0.0


# -- Statistics of a handful of seeds -------------------------------------------------------------------------


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
