"""A filled table as Markdown and on a terminal: for each row the paper's numbers, ours, the seeds and the data."""

from collections.abc import Iterable
from dataclasses import dataclass

from sfao.lab.console import PlainConsole
from sfao.lab.paper.results import AVERAGE, FORGETTING, Cell, FilledTable, Row, share_of_data
from sfao.lab.paper.series import QUICK_MODELS
from sfao.lab.paper.tables import stated_seeds
from sfao.lab.report.tables import Column, Table, render_markdown
from sfao.lab.report.tables import print_table as print_columns
from sfao.lab.run.record import Record

#: What the numbers are, by the kind of the table.
LEGENDS = {
    "accuracy": f"Accuracy after the last task in %. {AVERAGE}: the mean over tasks. {FORGETTING}: forgetting; the "
    "paper's follows from its table 11.",
    "memory": "Stored directions in MB of 2^20 bytes.",
    "projections": "Directions stored at the end; every batch projects off each of them.",
    "average_accuracy": "Average accuracy after the last task; the paper's is of one run.",
    "psm": "Plasticity-stability measure; the paper's is of one run.",
}
DIGITS = {"accuracy": 1, "memory": 2, "projections": 0, "average_accuracy": 4, "psm": 4}
PAPER, OURS = "paper", "ours"


@dataclass(frozen=True)
class Line:
    """One line of text: the paper's numbers of a row, or ours."""

    name: str
    kind: str
    numbers: dict[str, str]
    seeds: str
    data: str


NAME = Column[Line]("", lambda line: line.name)
KIND = Column[Line]("", lambda line: line.kind)
SEEDS = Column[Line]("seeds", lambda line: line.seeds, align="right")
DATA = Column[Line]("data", lambda line: line.data, align="right")


def as_markdown(table: FilledTable, heading: str = "##", *, brief: bool = False) -> str:
    """Return a heading, the table and its notes; `brief` leaves out those that are the same under every preset."""
    columns = [NAME, KIND, *_number_columns(table), SEEDS, DATA]
    notes = write_caveats(table) if brief else write_notes(table)
    return render_markdown(Table(title_of(table), columns, _lines(table), notes), heading) + "\n"


def print_table(table: FilledTable, console: PlainConsole) -> None:
    """Print the table in pieces that fit the terminal, so that no number is cut."""
    console.print(title_of(table), style="bold")
    columns = [NAME, KIND, *_number_columns(table), SEEDS, DATA]
    shown = Table("", columns, _lines(table), write_notes(table), is_apart=lambda line: line.kind == PAPER)
    print_columns(shown, console, repeated=2)


def title_of(table: FilledTable) -> str:
    """Return the number and title of a table, its preset and its protocol."""
    protocol = ", every row as the paper's was produced" if table.as_released else ""
    return f"Table {table.paper.number}, {table.paper.title}; preset {table.preset}{protocol}"


def format_number(mean: float, std: float | None, digits: int) -> str:
    """Return 67.4 ± 0.5, or the mean alone where there is no spread."""
    return f"{mean:.{digits}f}" if std is None else f"{mean:.{digits}f} ± {std:.{digits}f}"


def format_share(share: float) -> str:
    """Return `all`, or a part in percent: part (20 %)."""
    return "all" if share == 1 else f"part ({100 * share:.3g} %)"


def write_notes(table: FilledTable) -> list[str]:
    """Return all notes under a table."""
    spread = f"Mean ± standard deviation over seeds; the paper states {stated_seeds()} for tables 1 to 7."
    sources = [f"The paper's {row}: {source.text}" for row, source in table.paper.sources.items()]
    return [f"{LEGENDS[table.paper.kind]} {spread}", *write_caveats(table), *sources]


def write_caveats(table: FilledTable) -> list[str]:
    """Return what is incomplete or different in our runs, and the machines."""
    records = [record for row in table.rows for record in row.records]
    notes = [_describe_quick(table, records)] if table.scale.is_quick else []
    if table.is_partial:
        notes.append(f"On a part of the data: {_join(_describe_data(r) for r in records if share_of_data(r) < 1)}.")
    if unverified := [record for record in records if record.data.get("published") is False]:
        names = _join(record.data["name"] for record in unverified)
        notes.append(f"The files of {names} could not be compared with the published ones.")
    if missing := [text for row in table.rows if (text := _describe_missing(row))]:
        notes.append(f"Not run: {_join(missing)}.")
    failed = {row.name: len(row.failed) for row in table.rows if row.failed}
    notes += [f"{name}: {count} runs failed or diverged; the numbers leave them out." for name, count in failed.items()]
    if table.as_released:
        notes.append("The rows differ in scenario, model or data, as the paper's do; they cannot be compared.")
    elif changed := [row for row, source in table.paper.sources.items() if source.settings]:
        command = f"sfao reproduce {table.paper.name} --as-released"
        notes.append(f"The paper used another protocol for {', '.join(changed)}; `{command}` follows it.")
    if records:
        notes.append(f"Ours ran on {_join(map(_describe_machine, records))}.")
    return notes


def _number_columns(table: FilledTable) -> list[Column[Line]]:
    return [_number_column(title) for title in table.columns]


def _number_column(title: str) -> Column[Line]:
    return Column(title, lambda line: line.numbers[title], align="right")


def _lines(table: FilledTable) -> list[Line]:
    digits, lines, before = DIGITS[table.paper.kind], [], ""
    for row in table.rows:
        if row.name != before:  # the formulas of table 11 share the paper's line
            paper = {cell.column: _format_paper(cell, digits) for cell in row.cells}
            seeds = str(stated_seeds()) if table.paper.kind == "accuracy" else ""
            lines.append(Line(row.name, PAPER, paper, seeds, ""))
        before = row.name
        ours = {cell.column: _format_ours(cell, table, row) for cell in row.cells}
        kind = f"{OURS}, {row.formula}" if row.formula else OURS
        seeds = " to ".join(map(str, dict.fromkeys([row.seeds[0], row.seeds[-1]]))) if row.seeds else "not run"
        lines.append(Line("", kind, ours, seeds, ", ".join(map(format_share, row.shares))))
    return lines


def _format_paper(cell: Cell, digits: int) -> str:
    return "" if cell.paper is None else format_number(cell.paper.mean, cell.paper.std, digits)


def _format_ours(cell: Cell, table: FilledTable, row: Row) -> str:
    """Return our number, with its seeds where the cells of a row have different numbers of them."""
    if cell.ours is None:
        return ""
    std = None if table.paper.kind in ("memory", "projections") else cell.ours.std  # the same for every seed
    text = format_number(cell.ours.mean, std, DIGITS[table.paper.kind])
    return text if len(row.seeds) == 1 else f"{text} (n = {cell.ours.n})"


def _describe_quick(table: FilledTable, records: list[Record]) -> str:
    models = [name for name in QUICK_MODELS if any("wide_resnet" in str(record.config["model"]) for record in records)]
    replaced = f", a small model in place of {', '.join(models)}" if models else ""
    return (
        f"Quick run: {table.scale.fraction:.3g} of the training data at {table.scale.lr_factor:g} times the learning "
        f"rate{replaced}. It shows that everything works; it is not a result."
    )


def _join(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))


def _describe_missing(row: Row) -> str:
    columns = [cell.column for cell in row.cells if cell.paper and not cell.ours]
    if not columns:
        return ""
    return f"{', '.join(columns)} on {row.name}" if row.records else row.name


def _describe_data(record: Record) -> str:
    data = record.data
    return f"{data['train']:,} training images of {data['name']} ({100 * share_of_data(record):.3g} %)"


def _describe_machine(record: Record) -> str:
    versions = record.versions
    device = versions.get("gpu") or f"{versions.get('device')} ({versions.get('machine')})"
    return f"{device}, torch {versions.get('torch')}, sfao {versions.get('sfao')}"
