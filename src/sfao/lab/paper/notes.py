"""The notes under a reproduced table: how to read it, what is missing, and where both sides come from."""

from sfao.lab.paper.cells import Cell
from sfao.lab.paper.lines import NO, YES, format_value
from sfao.lab.paper.paper import stated_seeds
from sfao.lab.paper.provenance import provenance
from sfao.lab.paper.reproduced_table import AVERAGE, FORGETTING, ReproducedTable, Row
from sfao.lab.run.statistics import Spread

MISSING = "Missing"


def write_notes(table: ReproducedTable) -> list[str]:
    """Return all notes under a table."""
    lines = list(table.caveats)
    lines += [f"[{number}] {remark}." for number, remark in enumerate(table.remarks, start=1)]
    lines += [line for row in table.rows if (line := _single_run(table, row))]
    lines += [_legend(table)]
    missing = _note_missing(table)
    if missing:
        lines.append(f"{MISSING}, with no finished run: {'; '.join(missing)}.")
    troubled = {row.name: row.trouble for row in table.rows if row.trouble}
    lines += [f"{name}: {trouble}; their seeds are not in the numbers." for name, trouble in troubled.items()]
    if table.data:
        lines.append(f"Ours: {'; '.join(table.data)}; on {'; '.join(table.machines)}.")
        lines.append(f"Runs: {_runs(table)}.")
    if table.as_released:
        lines.append("The rows are of different scenarios, models or data, as the paper's are: not to be compared.")
    lines += [f"The paper's {row}: {source}" for row, source in table.sources.items()]
    return lines + _other_protocol(table)


def is_warning(note: str, table: ReproducedTable) -> bool:
    """Tell whether a note says that the numbers are incomplete."""
    return note in table.caveats or note.startswith(MISSING)


def _note_missing(table: ReproducedTable) -> list[str]:
    """Rows, and cells of rows that have others: OGD on Permuted MNIST (3)."""
    rows = dict.fromkeys(row.name for row in table.rows if row.empty)
    found = [", ".join(rows)] if rows else []
    for row in table.rows:
        columns = [cell.column for cell in row.cells if cell.paper is not None and cell.ours is None]
        if columns and not row.empty:
            found.append(f"{', '.join(columns)} on {row.name}")
    return list(dict.fromkeys(found))


def _other_protocol(table: ReproducedTable) -> list[str]:
    """The rows that the paper produced under another protocol, and the command that follows it."""
    other = [row for row in table.sources if provenance(table.number, row).settings]
    if table.as_released or not other:
        return []
    command = f"sfao reproduce {table.name} --as-released"
    return [f"Of another protocol in the paper: {', '.join(other)}; `{command}` follows it."]


def _legend(table: ReproducedTable) -> str:
    if table.kind in ("memory", "projections"):
        return f"{YES} is equal to what is printed, {NO} is not."
    if table.kind in ("average_accuracy", "psm"):
        return (
            f"Ours: mean ± standard deviation over seeds. {YES}: the paper's number, of one run, is within two "
            f"standard deviations of our mean; {NO}: it is not."
        )
    return (
        f"Mean ± standard deviation over seeds. {YES}: the difference is within two standard errors, of the paper's "
        f"{stated_seeds()} seeds and ours together, or too small to be printed; {NO}: it is not. Of its {AVERAGE} the "
        f"paper prints no spread. {FORGETTING}: forgetting; the paper's is what table 11 implies."
    )


def _single_run(table: ReproducedTable, row: Row) -> str:
    """A single run of the paper among tables 1 to 7 against the range of our runs; empty without one."""
    if table.kind != "accuracy":
        return ""
    ranges = [_range(cell, cell.ours) for cell in row.cells if cell.single and cell.ours]
    return f"The released single run: {'; '.join(ranges)}." if ranges else ""


def _range(cell: Cell, ours: Spread) -> str:
    if cell.agrees is None:
        return f"{cell.column} {cell.paper:.2f}, ours {ours.mean:.2f}, n = {ours.n}: one seed has no spread"
    inside = {True: "inside", False: "outside"}
    return (
        f"{cell.column} {cell.paper:.2f} is {inside[cell.agrees]} mean ± 2 std "
        f"({format_value(ours.mean, ours.std, 2)}) and "
        f"{inside[bool(cell.in_range)]} min to max ({cell.lowest:.2f} to {cell.highest:.2f}), n = {ours.n}"
    )


def _runs(table: ReproducedTable) -> str:
    """The runs by folder: split-mnist: sgd, ewc; split-cifar10: sgd."""
    places: dict[str, dict[str, None]] = {}
    for run in (run for row in table.rows if not row.empty for run in row.runs):
        place, _, name = run.partition("/")
        places.setdefault(place, {})[name] = None
    return "; ".join(f"{place}: {', '.join(names)}" for place, names in places.items())
