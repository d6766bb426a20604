"""Measurements for people: a table on the screen, and in Markdown."""

from collections.abc import Iterator
from itertools import groupby

from rich.console import Console
from rich.table import Table

from sfao.cost.results import Results, Row

HEADINGS = ("", "ms a step", "quartiles", "x SGD", "gate ms", "MB held", "MB workspace")


def show(results: Results, console: Console) -> None:
    from sfao.cli.terminal import table

    console.print(heading(results), markup=False)
    for title, rows in by_group(results):
        made: Table = table(*HEADINGS)
        made.title, made.title_justify = title, "left"
        for column in made.columns[1:]:
            column.justify = "right"
        for row in rows:
            made.add_row(*cells(row))
        console.print(made)
    for note in notes(results):
        console.print(note, style="dim", markup=False)


def as_markdown(results: Results) -> str:
    parts = [heading(results)]
    for title, rows in by_group(results):
        lines = [_line(HEADINGS), "|---|" + "---:|" * (len(HEADINGS) - 1), *(_line(cells(row)) for row in rows)]
        parts.append("\n".join([f"### {title}", "", *lines]))
    return "\n\n".join([*parts, *notes(results)]) + "\n"


def heading(results: Results) -> str:
    machine = results.machine
    where = machine.get("gpu") or machine["processor"]
    return (
        f"{where}; {results.setting}; {machine['threads']} CPU threads; torch {machine['torch']}, "
        f"Python {machine['python']}, sfao {machine['sfao']}; load {machine['load_before']} to {machine['load_after']}"
    )


def by_group(results: Results) -> Iterator[tuple[str, list[Row]]]:
    for title, rows in groupby(results.rows, key=lambda row: row.group):
        listed = list(rows)
        yield f"{title} ({listed[0].parameters:,} parameters)", listed


def cells(row: Row) -> list[str]:
    is_sgd = not row.directions
    held = [f"{row.memory_bytes / 1e6:,.2f}", f"{row.workspace_bytes / 1e6:,.2f}"]
    return [
        row.name + _mixed(row),
        f"{row.ms:,.2f}",
        f"{row.low_ms:,.2f}-{row.high_ms:,.2f}",
        f"{row.times_sgd:,.2f}",
        *([""] * 3 if is_sgd else [f"{row.gate_ms:,.2f}", *held]),
    ]


def notes(results: Results) -> list[str]:
    lines = [
        "Cases of a table took turns in one process. ms a step: the median, forward, backward and update; "
        "gate: beyond SGD's. MB held: the directions; workspace: their Gram matrices and factors.",
        "Every layer projects at every step, 10 directions sampled, where the table does not say otherwise."
        if _usual(results)
        else "Decisions and samples as asked for.",
    ]
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


def _mixed(row: Row) -> str:
    """What a mixture really was."""
    if row.decisions != "mix":
        return ""
    total = sum(row.decided.values())
    shares = (row.decided.get(name, 0) / total for name in ("accept", "project", "discard"))
    return f" {'/'.join(f'{100 * share:.0f}' for share in shares)} %"


def _line(texts: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(texts) + " |"
