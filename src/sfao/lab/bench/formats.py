"""Measurements in Markdown and on a terminal."""

from collections.abc import Iterator
from itertools import groupby

from sfao.lab.bench.results import Results, Row
from sfao.lab.console import PlainConsole
from sfao.lab.report.tables import Column, Table, print_notes, render_markdown, render_terminal


def print_results(results: Results, console: PlainConsole) -> None:
    console.print(_make_heading(results))
    for table in _tables(results):
        console.print(render_terminal(table, overflow="fold"))
    print_notes(write_notes(results), console)


def as_markdown(results: Results) -> str:
    tables = (render_markdown(table, "###") for table in _tables(results))
    return "\n".join([_make_heading(results) + "\n", *tables, *(note + "\n" for note in write_notes(results))])


def _make_heading(results: Results) -> str:
    machine = results.machine
    where = machine.get("gpu") or machine["processor"]
    return (
        f"{where}; {results.setting}; {machine['threads']} CPU threads; torch {machine['torch']}, "
        f"Python {machine['python']}, sfao {machine['sfao']}; load {machine['load_before']} to {machine['load_after']}"
    )


def _tables(results: Results) -> Iterator[Table[Row]]:
    """Yield one table per group of cases that took turns."""
    for title, group in groupby(results.rows, key=lambda row: row.group):
        rows = list(group)
        yield Table(f"{title} ({rows[0].parameters:,} parameters)", COLUMNS, rows)


def _beyond_sgd(number: float, row: Row) -> str:
    """Return the number, but nothing for SGD itself."""
    return "" if row.name == "SGD" else f"{number:,.2f}"


def _mixture(row: Row) -> str:
    """The shares of a mixture that were really accepted, projected and discarded; empty for other cases."""
    if row.decisions != "mix":
        return ""
    total = sum(row.decided.values())
    shares = (row.decided.get(name, 0) / total for name in ("accept", "project", "discard"))
    return f" {'/'.join(f'{100 * share:.0f}' for share in shares)} %"


COLUMNS: tuple[Column[Row], ...] = (
    Column("", lambda row: row.name + _mixture(row)),
    *(
        Column(title, text, align="right", wraps=True)
        for title, text in {
            "ms a step": lambda row: f"{row.ms:,.2f}",
            "quartiles": lambda row: f"{row.low_ms:,.2f}-{row.high_ms:,.2f}",
            "x SGD": lambda row: f"{row.times_sgd:,.2f}",
            "extra ms": lambda row: _beyond_sgd(row.extra_ms, row),
            "MB held": lambda row: _beyond_sgd(row.memory_bytes / 1e6, row),
            "MB workspace": lambda row: _beyond_sgd(row.workspace_bytes / 1e6, row),
        }.items()
    ),
)


def write_notes(results: Results) -> list[str]:
    lines = [
        "Cases of a table took turns in one process. ms a step: the median, forward, backward and update; "
        "extra: beyond SGD's. MB held: the memory of past tasks; workspace: Gram matrices and factors of directions.",
    ]
    if any(row.name == "DriftBound" for row in results.rows):
        lines.append("DriftBound projects every 8 steps; the time is the mean over them.")
    if any(row.directions for row in results.rows):
        lines.append(
            "Of directions: every layer projects at every step, 10 sampled, where the table does not say otherwise."
            if _usual(results)
            else "Of directions: decisions and samples as asked for."
        )
    if any(row.decisions == "mix" for row in results.rows):
        lines.append("A mixture is accepted/projected/discarded so often, in per cent of layers and steps.")
    if results.cpu_time:
        lines.append("Time is that of the one CPU thread: what other processes take is not counted.")
    elif max(results.machine["load_before"] or 0, results.machine["load_after"] or 0) > results.machine["cores"]:
        lines.append(
            "The machine was busy, and these times are not to be trusted: with --threads 1 it would show less."
        )
    return lines + [f"Left out, too large: {said}." for said in results.left_out]


def _usual(results: Results) -> bool:
    plain = [row for row in results.rows if row.storage and row.group.endswith("directions")]
    return all(row.decisions == "project" and row.samples == min(10, row.directions) for row in plain)
