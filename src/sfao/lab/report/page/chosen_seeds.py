"""The numbers of single runs, from which the page computes means anew for the seeds that a reader chose."""

from collections.abc import Collection
from typing import Any

from sfao.lab.console import escape_controls
from sfao.lab.metrics import accuracy_when_learnt
from sfao.lab.report.comparison import split_into_rows
from sfao.lab.report.groups import RunGroup
from sfao.lab.run.record import Record

#: Digits of the accuracies that figures show; they write three.
DIGITS = 5


def describe_runs(group: RunGroup, drawn: Collection[str]) -> dict[str, Any]:
    """Return the rows of a group with their runs, one per seed; matrices only of the rows that are drawn."""
    records = split_into_rows([run.record for run in group.runs])
    return {
        "baseline": escape_controls(group.group.baseline),
        "rows": {
            escape_controls(row.method): {
                "isBound": row.is_bound,
                "storesData": row.stores_data,
                "isTested": row.test is not None,
                "runs": [_describe(record, row.method in drawn) for record in records[row.method]],
            }
            for row in group.group.rows
        },
    }


def _describe(record: Record, with_matrix: bool) -> dict[str, Any]:
    known = {"seed": record.seed, "ended": record.status}
    if record.status != "done":
        return known
    matrix = [[round(value, DIGITS) for value in line] for line in record.accuracy_matrix]
    return {
        **known,
        "accuracy": record.metrics["average_accuracy"],
        "forgetting": record.metrics["average_forgetting"],
        "learnt": accuracy_when_learnt(record.accuracy_matrix),
        "memory": record.memory_bytes,
        "seconds": record.seconds,
        **({"rollbacks": len(record.rollbacks)} if record.config.get("guard") else {}),
        **({"matrix": matrix} if with_matrix else {}),
    }
