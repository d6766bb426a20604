"""The tables of a curriculum: the tasks, their pairs, and what each order of them led to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sfao.lab.report.comparison_table import format_mean
from sfao.lab.report.tables import Column, Table
from sfao.lab.run.curriculum import Curriculum, TaskDifficulty
from sfao.lab.run.record import Record
from sfao.lab.run.statistics import PairedTest, Spread, paired_test, spread

#: The order that the others are compared with.
REFERENCE = "benchmark"


@dataclass(frozen=True)
class OrderResult:
    """One order of the tasks over its seeds; numbers are of the runs that are done."""

    name: str
    order: list[int]
    cost: float
    accuracy: Spread | None
    forgetting: Spread | None
    #: Against the order of the benchmark; None for that order itself and for an order equal to it.
    test: PairedTest | None


def compare_orders(curriculum: Curriculum, records: Mapping[str, Sequence[Record]]) -> list[OrderResult]:
    """Return the result of every order, given {name of the order: its records}."""
    orders = curriculum.orders
    return [
        OrderResult(
            name=name,
            order=order,
            cost=curriculum.cost(order),
            accuracy=_spread(records[name], "average_accuracy"),
            forgetting=_spread(records[name], "average_forgetting"),
            test=_test(records[name], records[REFERENCE]) if order != orders[REFERENCE] else None,
        )
        for name, order in orders.items()
    ]


def _values(records: Sequence[Record], metric: str) -> dict[int, float]:
    return {record.seed: record.metrics[metric] for record in records if record.status == "done"}


def _spread(records: Sequence[Record], metric: str) -> Spread | None:
    values = _values(records, metric)
    return spread(list(values.values())) if values else None


def _test(ours: Sequence[Record], theirs: Sequence[Record]) -> PairedTest:
    return paired_test(_values(ours, "average_accuracy"), _values(theirs, "average_accuracy"), REFERENCE)


def make_task_table(curriculum: Curriculum) -> Table[TaskDifficulty]:
    return Table(
        "Tasks",
        [
            Column("task", lambda task: str(task.task)),
            Column("name", lambda task: task.name),
            _share("difficulty", lambda task: task.difficulty),
            Column("interference", lambda task: f"{task.interference:.2e}", align="right"),
            _share("accept", lambda task: task.accept),
            _share("project", lambda task: task.project),
            _share("discard", lambda task: task.discard),
        ],
        curriculum.tasks,
        [
            "difficulty: the share of this task's updates that the gate takes away, right after each other task alone; "
            "interference: how far a step still changes what is remembered of the other, learning rate x risk.",
        ],
    )


def make_pair_table(curriculum: Curriculum) -> Table[TaskDifficulty]:
    """Return the interference of every pair: rows are learnt first, columns second."""
    known = {(pair.first, pair.second): pair.interference for pair in curriculum.pairs}

    def interference_of(second: int) -> Column[TaskDifficulty]:
        return Column(
            f"then {second}",
            lambda first: "" if first.task == second else f"{known[first.task, second]:.2e}",
            align="right",
        )

    columns = [Column[TaskDifficulty]("first", lambda task: f"{task.task} ({task.name})")]
    columns += [interference_of(task.task) for task in curriculum.tasks]
    return Table("Interference of the second task with the first", columns, curriculum.tasks)


def make_order_table(title: str, results: Sequence[OrderResult]) -> Table[OrderResult]:
    return Table(
        title,
        [
            Column("order", lambda result: result.name),
            Column("tasks", lambda result: ",".join(map(str, result.order))),
            Column("interference", lambda result: f"{result.cost:.2e}", align="right"),
            Column("accuracy", lambda result: format_mean(result.accuracy), align="right"),
            Column("forgetting", lambda result: format_mean(result.forgetting), align="right"),
            Column("difference", lambda result: _format_difference(result.test), align="right"),
            Column("p", lambda result: _format_p_value(result.test), align="right"),
        ],
        results,
        [
            "interference: summed over all pairs, each in the order learnt; difference: of the accuracy to that of the "
            "benchmark's order; p: two-sided paired t-test over the same seeds.",
            *_note_equal_costs(results),
        ],
    )


def _note_equal_costs(results: Sequence[OrderResult]) -> list[str]:
    if len({result.cost for result in results}) > 1:
        return []
    return ["Every order costs the same, because the gate let nothing through: the benchmark's own is proposed."]


def _share(title: str, value: Callable[[TaskDifficulty], float]) -> Column[TaskDifficulty]:
    return Column(title, lambda task: f"{value(task):.3f}", value, align="right")


def _format_difference(test: PairedTest | None) -> str:
    return "" if test is None or test.difference is None else f"{test.difference:+.3f}"


def _format_p_value(test: PairedTest | None) -> str:
    return "" if test is None or test.p is None else f"{test.p:.3f}"
