"""The tables of the page: one row per method, and one row per run."""

from math import isfinite

from sfao.lab.report.comparison import Group, Row
from sfao.lab.report.comparison_columns import drop_needless, format_size, page_columns
from sfao.lab.report.groups import RunGroup
from sfao.lab.report.runs import LoadedRun
from sfao.lab.tables import Column, Table

#: Metrics of single runs, by their names in a record.
METRICS = {
    "average_accuracy": "accuracy",
    "average_forgetting": "forgetting",
    "backward_transfer": "BWT",
    "forward_transfer": "FWT",
    "psm": "PSM",
    "psm_released": "PSM, released",
}


def make_result_table(group: Group) -> Table[Row]:
    """Return the table of one row per method, with the best of the ranked columns marked."""
    # A column of nothing takes room from the names; with fewer seeds there is never more in it.
    columns = [column for column in drop_needless(page_columns(group), group) if any(map(column.text, group.rows))]
    return Table(
        f"Results by method: {group.title}",
        columns,
        group.rows,
        is_apart=lambda row: row.is_bound,
        traits=lambda row: {"row": row.method},
    )


def make_runs_table(group: RunGroup) -> Table[LoadedRun]:
    """Return the table of one row per run."""
    guarded = any(run.record.config.get("guard") for run in group.runs)
    columns = [column for column in RUN_COLUMNS if column is not ROLLBACKS or guarded]
    return Table(
        f"Every run: {group.group.title}",
        columns,
        group.runs,
        traits=lambda run: {"row": group.row_of[run.name], "seed": str(run.record.seed)},
    )


def _metric_column(name: str, title: str) -> Column[LoadedRun]:
    def value(run: LoadedRun) -> float | None:
        found = run.record.metrics.get(name)
        return found if found is not None and isfinite(found) else None

    return Column(
        title, lambda run: _format_metric(value(run)), value, align="right", descending="forgetting" not in title
    )


def _format_metric(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}".replace("-", "\N{MINUS SIGN}")


ROLLBACKS = Column[LoadedRun](
    "rollbacks", lambda run: str(len(run.record.rollbacks)), lambda run: len(run.record.rollbacks), align="right"
)
RUN_COLUMNS: tuple[Column[LoadedRun], ...] = (
    Column("run", lambda run: run.name),
    Column("method", lambda run: run.record.method),
    Column("seed", lambda run: str(run.record.seed), lambda run: run.record.seed, align="right"),
    Column("ended", lambda run: run.record.status, is_trouble=lambda run: run.record.status != "done"),
    *(_metric_column(name, title) for name, title in METRICS.items()),
    ROLLBACKS,
    Column("steps", lambda run: f"{run.record.steps:,}", lambda run: run.record.steps, align="right"),
    Column("ms a step", lambda run: f"{run.record.step_ms:.2f}", lambda run: run.record.step_ms, align="right"),
    Column("time", lambda run: f"{run.record.seconds:.1f} s", lambda run: run.record.seconds, align="right"),
    Column(
        "held", lambda run: format_size(run.record.memory_bytes), lambda run: run.record.memory_bytes, align="right"
    ),
)
