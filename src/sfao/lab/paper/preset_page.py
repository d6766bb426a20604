"""The page of a preset: its figures, every table that records are kept for, and what there are none for."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sfao.lab.paper.agreement import count_cells, count_table, own_rows
from sfao.lab.paper.archive import Archive, series_key, settings_key
from sfao.lab.paper.formats import as_markdown
from sfao.lab.paper.page_figures import draw_figure1, draw_figure2, draw_threshold_effect
from sfao.lab.paper.paper import paper_table, stated_seeds, table_numbers
from sfao.lab.paper.protocol import protocol
from sfao.lab.paper.reproduced_table import ReproducedTable, Row, reproduce_table
from sfao.lab.report.runs import LoadedRun
from sfao.lab.report.style import Drawing
from sfao.lab.report.tables import Column, Table, render_grid
from sfao.lab.run.record import Record

ABOUT = {
    "paper": "The text, taken literally: 784 hidden units, a CNN with 128, momentum 0.9 as an exponential average, a "
    "gate a layer with signed cosines, accept above 0.85, exact projection.",
    "released": "What the notebooks do: 256 units, no momentum, one gate for the model with absolute cosines, accept "
    "above 0.80 (0.85 on WRN-28-10), sequential projection, first in first out; OGD stores every batch.",
    "recommended": "What `sfao run` does when nothing else is said.",
}

BACK = "[All presets](../reproduction.md)."
FIGURE2 = "Figure 2, the geometry of an update"
#: Why figure 2 is not there.
NO_STEPS = "drawn from the steps of a run, of which no sample is kept"
NO_DIRECTIONS = "the memory holds axes of inputs, no directions that an update could be drawn beside"


@dataclass(frozen=True)
class PresetResults:
    """All that the records of a preset give."""

    preset: str
    archive: Archive
    tables: list[ReproducedTable]
    #: The runs of which some steps are kept.
    samples: list[LoadedRun]
    drawings: list[Drawing]


def gather_results(preset: str, archive: Archive, samples: list[LoadedRun]) -> PresetResults:
    """Return the tables and the figures of a preset that its records and samples have something for."""
    drawn = (
        draw_threshold_effect(preset, archive),
        draw_figure1(preset, archive),
        draw_figure2(preset, samples),
    )
    tables = list(_fill_tables(preset, archive))
    return PresetResults(preset, archive, tables, samples, [drawing for drawing in drawn if drawing is not None])


def write_preset_page(results: PresetResults, reasons: Mapping[str, str], show: Callable[[Drawing], str]) -> str:
    """Return the page; `reasons` say why a table has no records, `show` returns the Markdown of a figure."""
    parts = [f"# Preset {results.preset}\n\n{ABOUT[results.preset]} {BACK}\n"]
    parts.append(_count_agreement(results.tables))
    parts += [f"## {drawing.title}\n\n{show(drawing)}" for drawing in results.drawings]
    parts += [as_markdown(table) for table in results.tables]
    parts.append(_list_missing(results, reasons))
    parts.append(_list_unused(results.preset, results.archive))
    return "\n".join(part for part in parts if part)


# -- Tables --------------------------------------------------------------------------------------------------


def _fill_tables(preset: str, archive: Archive) -> Iterable[ReproducedTable]:
    for number in table_numbers():
        table = reproduce_table(number, preset, archive, asked=stated_seeds())
        if not table.empty:
            yield table
        if preset == "released" and _released_rows(number, archive):
            yield reproduce_table(number, preset, archive, asked=stated_seeds(), as_released=True)


def _released_rows(number: int, archive: Archive) -> list[Record]:
    """Return the records of rows that were run under another protocol, to follow the paper's."""
    plain, released = (protocol(number, "released", as_released).cells for as_released in (False, True))
    return [record for place, series in released.items() if series != plain[place] for record in archive.of(series)]


# -- Agreement -----------------------------------------------------------------------------------------------


def _count_agreement(tables: list[ReproducedTable]) -> str:
    """The cells of the paper that agree with ours, table by table and row by row."""
    if not tables:
        return ""
    lines = [
        "## Agreement, row by row",
        "",
        "Cells of the paper within two standard errors of ours, or nearer than it prints (of one run: within two",
        "standard deviations; bytes and counts: equal), of those that our runs fill and a spread allows to judge.",
        "",
        render_grid(Table("", AGREEMENT_COLUMNS, tables)),
    ]
    return "\n".join(lines) + "\n"


def _name_table(table: ReproducedTable) -> str:
    return f"{table.number}, {table.title}" + ", every row as the paper's" * table.as_released


def _agreement(table: ReproducedTable) -> str:
    """3 of 7, over all rows; empty where no cell can be judged."""
    tally = count_table(table)
    return str(tally) if tally.judged else ""


def _agreement_by_row(table: ReproducedTable) -> str:
    judged = {_row_name(row): tally for row in own_rows(table) if (tally := count_cells(row.cells)).judged}
    return ", ".join(f"{name} {tally}" for name, tally in judged.items()) or "one seed each"


def _row_name(row: Row) -> str:
    return f"{row.name}, {row.remark.rstrip('.')}:" if row.remark else row.name


AGREEMENT_COLUMNS: tuple[Column[ReproducedTable], ...] = (
    Column("table", _name_table),
    Column("agree", _agreement, align="right"),
    Column("row by row", _agreement_by_row),
)


# -- What is not there -----------------------------------------------------------------------------------------


def _list_missing(results: PresetResults, reasons: Mapping[str, str]) -> str:
    there = {table.number for table in results.tables if not table.as_released}
    lines = []
    for table in (paper_table(number) for number in table_numbers() if number not in there):
        command = f"sfao reproduce {table.name} --preset {results.preset}"
        lines.append(f"- Table {table.number}, {table.title}: {reasons.get(table.name, 'not run yet')} (`{command}`)")
    if not any(drawing.name.startswith("figure2") for drawing in results.drawings):
        why = NO_DIRECTIONS if results.samples else NO_STEPS
        lines.append(f"- {FIGURE2}: {why} (`sfao reproduce figure2 --preset {results.preset}`)")
    return "\n".join(["## Missing", "", *lines]) + "\n" if lines else ""


def _list_unused(preset: str, archive: Archive) -> str:
    """A sentence on the records that no table uses: of settings that have changed since."""
    wanted = set()
    for number in table_numbers():
        for as_released in (False, True):
            runs = protocol(number, preset, as_released)
            wanted |= {series_key(series) for series in (*runs.cells.values(), *runs.sweep.values())}
    stale = [record for record in archive.records if settings_key(record.config) not in wanted]
    if not stale:
        return ""
    listed = ", ".join(dict.fromkeys(f"{record.method} on {record.benchmark}" for record in stale))
    return f"{len(stale)} records are of settings that the preset no longer has, and stand in no table: {listed}.\n"
