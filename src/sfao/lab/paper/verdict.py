"""The verdict on the paper in five sentences, made from the tables that were reproduced."""

from collections.abc import Callable, Iterable, Sequence
from math import isclose

from sfao.lab.paper.agreement import Tally, count_cells, judge_table, own_rows
from sfao.lab.paper.cells import Cell
from sfao.lab.paper.provenance import provenance
from sfao.lab.paper.reproduced_table import AVERAGE, FORGETTING, ReproducedTable, Row

UNJUDGED = "cannot be judged, having one seed"
#: {verdict on a table: the share of agreeing cells from which on it is this one}
VERDICTS = {"hold": 0.75, "hold in part": 0.25, "do not hold": 0.0, UNJUDGED: -1.0}
#: Percentage points within which an average counts as come out as printed.
NEAR = 1.0
PRINTED_FORMULA = "as printed"
OWN = "SFAO"

#: The changes that --as-released makes to rows, in words: (setting, value, words).
CHANGES = (
    ("scenario", "class", "one head over all classes"),
    ("scenario", "task", "a head for every task"),
    ("options.fresh", True, "a fresh model for every task"),
)

Tables = Sequence[ReproducedTable]


def write_verdict(tables: Tables) -> list[str]:
    """Return one sentence each on: the tables that hold, why others do not, rows done again, the text, our settings.

    A sentence on what has no runs says so.
    """
    released = [table for table in tables if table.preset == "released" and not table.as_released]
    again = [table for table in tables if table.as_released]
    literal = [table for table in tables if table.preset == "paper"]
    own = [table for table in tables if table.preset == "recommended"]
    return [
        _judge_tables(released),
        _explain(released),
        _compare_rows_done_again(released, again),
        _judge_text(literal),
        _compare_own_settings(own),
    ]


# -- 1: the tables -----------------------------------------------------------------------------------------------


def _judge_tables(tables: Tables) -> str:
    if not tables:
        return "Of what the paper's notebooks do (preset released) nothing has been run yet."
    sorted_out = {verdict: [table for table in tables if _holds(_count(table)) == verdict] for verdict in VERDICTS}
    said = [
        f"{_tables(own)} {_list(own, _with_tally if verdict != UNJUDGED else _number)} {_plural(verdict, own)}"
        for verdict, own in sorted_out.items()
        if own
    ]
    partial = [table for table in tables if table.caveats]
    return (
        "As the paper's notebooks do it (preset released), by the cells that agree with ours, "
        f"{_join(said)}{_note_printed_formula(tables)}"
        f"{f'; {_tables(partial)} {_list(partial, _number)} {_are(partial)} of a part of the data' if partial else ''}."
    )


def _holds(tally: Tally) -> str:
    if not tally.judged:
        return UNJUDGED
    return next(verdict for verdict, least in VERDICTS.items() if tally.share >= least)


def _with_tally(table: ReproducedTable) -> str:
    return f"{table.number} ({_count(table)})"


def _count(table: ReproducedTable) -> Tally:
    """Return the tally of a table; of two formulas, that of the one by which the paper computed."""
    found = judge_table(table)
    return sum((one.tally for one in found if not one.remark.endswith(PRINTED_FORMULA)), Tally())


def _note_printed_formula(tables: Tables) -> str:
    for table in tables:
        printed = [one.tally for one in judge_table(table) if one.remark.endswith(PRINTED_FORMULA)]
        total = sum(printed, Tally())
        if total.judged:
            return f" (table {table.number} by the formula of the released code; by the printed one {total})"
    return ""


# -- 2: the reason ------------------------------------------------------------------------------------------------


def _explain(tables: Tables) -> str:
    rows = [(table, row) for table in tables if table.kind == "accuracy" for row in own_rows(table)]
    judged = [(table, row) for table, row in rows if _count_row(row).judged]
    if not judged:
        return "Why rows differ cannot be said before their runs have a spread."
    foreign = [(table, row) for table, row in judged if provenance(table.number, row.name).settings]
    stated = [one for one in judged if one not in foreign]
    own = [one for one in stated if one[1].name == OWN]
    text = f"The protocol decides: of tables 1 to 7, {OWN}'s rows agree in {_sum(own)} cells and the others that the "
    text += f"paper made under the protocol of its text in {_sum([one for one in stated if one not in own])}"
    if not foreign:
        return f"{text}."
    return f"{text}, while those that it made under another ({_name_changes(foreign)}) agree in {_sum(foreign)}."


def _count_row(row: Row) -> Tally:
    return count_cells(cell for cell in row.cells if cell.column not in (AVERAGE, FORGETTING))


def _sum(rows: Iterable[tuple[ReproducedTable, Row]]) -> Tally:
    return sum((_count_row(row) for _, row in rows), Tally())


def _name_changes(rows: Iterable[tuple[ReproducedTable, Row]]) -> str:
    """EWC with one head over all classes, SI with a head for every task."""
    found: dict[str, dict[str, None]] = {}
    for table, row in rows:
        settings = provenance(table.number, row.name).settings
        words = next((words for name, value, words in CHANGES if settings.get(name) == value), "other settings")
        found.setdefault(words, {})[row.name] = None
    return ", ".join(f"{_join(names)} with {words}" for words, names in found.items())


# -- 3: rows run as the paper's were --------------------------------------------------------------------------------


def _compare_rows_done_again(plain: Tables, again: Tables) -> str:
    found = [(table, row) for table in again for row in own_rows(table) if _is_done_again(table, row)]
    if not found:
        return "None of those rows has been run again the way that the paper's was."
    near = [(table, row) for table, row in found if _distance(row) <= NEAR]
    others = [_find(plain, table.number, row.name) for table, row in found]
    before = [row for row in others if row is not None and _distance(row) <= NEAR]
    shown = _join(f"{row.name} in table {table.number} has {_pair(row)}" for table, row in found)
    return (
        f"Run the way that the paper's were made (`--as-released`), {len(near)} of {len(found)} such rows come out "
        f"within {NEAR:g} point of the printed average, where one protocol for all had {len(before)}: {shown}."
    )


def _is_done_again(table: ReproducedTable, row: Row) -> bool:
    return bool(provenance(table.number, row.name).settings) and _cell(row, AVERAGE).difference is not None


def _find(tables: Tables, number: int, name: str) -> Row | None:
    rows = [row for table in tables if table.number == number for row in own_rows(table) if row.name == name]
    return rows[0] if rows and not rows[0].empty else None


def _distance(row: Row) -> float:
    """Return how far the averages are apart, in points, as printed with one digit."""
    difference = _cell(row, AVERAGE).difference
    return float("inf") if difference is None else abs(round(difference, 1))


# -- 4: the text -----------------------------------------------------------------------------------------------------


def _judge_text(tables: Tables) -> str:
    own = [table for table in tables if table.kind == "accuracy"]
    total = sum(map(_count, own), Tally())
    if not total.judged:
        return "The text, taken literally (preset paper), has not been run yet."
    text = (
        "Taken literally (preset paper), the text, which differs from the notebooks in widths, momentum and gate, "
        f"gives other numbers: {total} cells of tables 1 to 7 agree"
    )
    for table in own:
        row = _find([table], table.number, OWN)
        if row is not None:
            forgetting = _cell(row, FORGETTING)
            lost = f", with a forgetting of {_both(forgetting)}" if forgetting.difference is not None else ""
            return f"{text}, and in table {table.number} {OWN} has {_pair(row)} printed{lost}."
    return f"{text}."


# -- 5: our settings --------------------------------------------------------------------------------------------------


def _compare_own_settings(tables: Tables) -> str:
    rows = [(table, row) for table in tables if table.kind == "accuracy" if (row := _find([table], table.number, OWN))]
    if not rows:
        return "With the settings that we recommend nothing has been run yet."
    ahead = [row for _, row in rows if (_cell(row, AVERAGE).difference or 0) > 0]
    shown = _join(f"{_pair(row)} in table {table.number}" for table, row in rows)
    return (
        f"With the settings that we recommend, {OWN}'s average is above the one printed for it in {len(ahead)} of "
        f"{len(rows)} tables: {shown}."
    )


# -- Words ------------------------------------------------------------------------------------------------------------


def _cell(row: Row, column: str) -> Cell:
    return next(cell for cell in row.cells if cell.column == column)


def _pair(row: Row) -> str:
    return _both(_cell(row, AVERAGE))


def _both(cell: Cell) -> str:
    """85.4 beside 80.5: ours, then the paper's."""
    ours, paper = (cell.ours.mean if cell.ours else None), cell.paper
    if ours is None or paper is None:
        return "no number"
    return f"{0.0 if isclose(ours, 0, abs_tol=0.05) else ours:.1f} beside {paper:.1f}"


def _number(table: ReproducedTable) -> str:
    return str(table.number)


def _list(tables: Tables, name: Callable[[ReproducedTable], str]) -> str:
    return _join(map(name, tables))


def _tables(tables: Tables) -> str:
    return "table" if len(tables) == 1 else "tables"


def _are(tables: Tables) -> str:
    return "is" if len(tables) == 1 else "are"


def _plural(verb: str, tables: Tables) -> str:
    """Return the verb for one table or several: holds, hold."""
    if len(tables) > 1 or verb == UNJUDGED:
        return verb
    return verb.replace("do not", "does not") if verb.startswith("do") else verb.replace("hold", "holds")


def _join(words: Iterable[str]) -> str:
    """1, 2 and 3."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
