"""The order of tasks in which later ones interfere least with earlier ones, proposed from pairs of tasks."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import fmean
from typing import Any

from sfao.lab.run.interference import PairStatistics

#: Up to so many tasks the best order is found; beyond, a good one.
MOST_TASKS = 12


@dataclass(frozen=True)
class TaskDifficulty:
    """One task, on average over the tasks that it may follow.

    `difficulty` is the share of its updates that the gate takes away, `interference` what it does to the other task
    in spite of that; the rest are shares of decisions.
    """

    task: int
    name: str
    difficulty: float
    interference: float
    accept: float
    project: float
    discard: float


@dataclass(frozen=True)
class Curriculum:
    """The tasks, their pairs, and the order of least interference with its cost."""

    tasks: list[TaskDifficulty]
    pairs: list[PairStatistics]
    proposed: list[int]

    def cost(self, order: Sequence[int]) -> float:
        """Return the sum of the interference of all pairs, each in the order in which it is learnt."""
        return _cost(order, _interference(self.pairs))

    @property
    def orders(self) -> dict[str, list[int]]:
        """The orders to compare: the benchmark's, the one proposed, and its reverse."""
        return {
            "benchmark": list(range(len(self.tasks))),
            "proposed": self.proposed,
            "reversed": self.proposed[::-1],
        }

    def as_json(self) -> dict[str, Any]:
        """Return plain containers."""
        return {
            "tasks": [asdict(task) for task in self.tasks],
            "pairs": [asdict(pair) for pair in self.pairs],
            "orders": {name: {"order": order, "cost": self.cost(order)} for name, order in self.orders.items()},
        }


def propose_curriculum(names: Sequence[str], pairs: Sequence[PairStatistics]) -> Curriculum:
    """Return the order that costs least, and what is known of each task."""
    proposed = find_cheapest_order(len(names), _interference(pairs))
    return Curriculum([_describe(task, name, pairs) for task, name in enumerate(names)], list(pairs), proposed)


def _describe(task: int, name: str, pairs: Sequence[PairStatistics]) -> TaskDifficulty:
    after = [pair for pair in pairs if pair.second == task]
    return TaskDifficulty(
        task=task,
        name=name,
        difficulty=fmean(1 - pair.kept for pair in after),
        interference=fmean(pair.interference for pair in after),
        accept=fmean(pair.accept for pair in after),
        project=fmean(pair.project for pair in after),
        discard=fmean(pair.discard for pair in after),
    )


Interference = dict[tuple[int, int], float]


def _interference(pairs: Sequence[PairStatistics]) -> Interference:
    return {(pair.first, pair.second): pair.interference for pair in pairs}


def _cost(order: Sequence[int], interference: Interference) -> float:
    return sum(interference[pair] for pair in combinations(order, 2))


def find_cheapest_order(tasks: int, interference: Interference) -> list[int]:
    """Return the order with the least sum over pairs, the first in numbers of equals."""
    return _find_best(tasks, interference) if tasks <= MOST_TASKS else _improve(tasks, interference)


def _find_best(tasks: int, interference: Interference) -> list[int]:
    """Search by sets: the best order of a set ends in one of its tasks, after the best order of the others."""
    best: dict[frozenset[int], tuple[float, list[int]]] = {frozenset(): (0.0, [])}
    for size in range(1, tasks + 1):
        for members in combinations(range(tasks), size):
            endings = []
            for last in members:
                cost, order = best[frozenset(members) - {last}]
                endings.append((cost + sum(interference[other, last] for other in order), [*order, last]))
            best[frozenset(members)] = min(endings)
    return best[frozenset(range(tasks))][1]


def _improve(tasks: int, interference: Interference) -> list[int]:
    """Insert task after task where it costs least, then move single tasks for as long as that costs less."""
    order: list[int] = []
    for task in range(tasks):
        order = _insert(task, order, interference)
    while True:
        moved = [_insert(task, [other for other in order if other != task], interference) for task in order]
        better = min(moved, key=lambda each: _cost(each, interference))
        if _cost(better, interference) >= _cost(order, interference):
            return order
        order = better


def _insert(task: int, order: list[int], interference: Interference) -> list[int]:
    places = [[*order[:place], task, *order[place:]] for place in range(len(order) + 1)]
    return min(places, key=lambda each: _cost(each, interference))
