"""The agreement of all tables with the paper in one picture."""

from collections.abc import Iterable, Sequence

from sfao.lab.paper.agreement import Judged, Tally, judge_table
from sfao.lab.paper.archive import Archive
from sfao.lab.paper.paper import paper_table, stated_seeds, table_numbers
from sfao.lab.paper.protocol import METHODS, STREAM_OF
from sfao.lab.paper.reproduced_table import ReproducedTable, reproduce_table
from sfao.lab.report.paper_figures import NOT_RUN, UNJUDGED, Count, agreement_matrix
from sfao.lab.report.style import Drawing

#: Ends a cell whose numbers the paper made under another protocol than ours.
FOREIGN = "†"
#: What tables 8 to 11 are of, in a word or two.
SUBJECTS = {8: "bytes", 9: "projections", 10: "accuracy, thresholds", 11: "PSM"}
#: The panels in reading order: what was nearest to the paper first.
_ORDER = [("released", False), ("released", True), ("paper", False), ("recommended", False)]


def draw_matrix(tables: Sequence[ReproducedTable]) -> Drawing | None:
    """Draw a panel per preset, and one of rows run as the paper's were; None without a table."""
    if not tables:
        return None
    kinds = sorted({(table.preset, table.as_released) for table in tables}, key=_ORDER.index)
    matrices = {name_kind(*kind): _make_matrix(*kind, tables) for kind in kinds}
    return agreement_matrix(
        matrices,
        list(METHODS),
        name="agreement",
        title="Which cells of the paper agree",
        caption=(
            "How many of the paper's cells agree with our runs, of those that can be judged: light none, dark all. "
            "Agreement is a difference within two standard errors, or too small to be printed (tables 10 and 11, one "
            "run each: within two of our standard deviations; tables 8 and 9: equal). "
            f"{FOREIGN}: the paper's row is of another protocol than this panel. "
            f"{UNJUDGED}: our runs have no spread, being one seed. {NOT_RUN}: not run. No cell: the paper has none."
        ),
    )


def name_kind(preset: str, as_released: bool) -> str:
    return f"{preset}, every row as the paper's" if as_released else f"{preset}, one protocol"


def _make_matrix(preset: str, as_released: bool, tables: Sequence[ReproducedTable]) -> dict[str, dict[str, Count]]:
    """Return the rows of all tables, in the paper's order, those that have not been run too."""
    there = {one.number: one for one in tables if (one.preset, one.as_released) == (preset, as_released)}
    wanted = [number for number in table_numbers() if number in STREAM_OF or not as_released]
    found = [there.get(number) or _empty_table(number, preset, as_released) for number in wanted]
    return dict(row for table in found for row in _rows(table))


def _empty_table(number: int, preset: str, as_released: bool) -> ReproducedTable:
    return reproduce_table(number, preset, Archive([]), asked=stated_seeds(), as_released=as_released)


def _rows(table: ReproducedTable) -> Iterable[tuple[str, dict[str, Count]]]:
    """Yield the rows of a table in the matrix: one, or one per formula."""
    judged = judge_table(table)
    for remark in dict.fromkeys(one.remark for one in judged):
        yield _name(table, remark), _sum_by_method([one for one in judged if one.remark == remark])


def _name(table: ReproducedTable, remark: str) -> str:
    number = table.number
    subject = STREAM_OF.get(number) or SUBJECTS.get(number) or paper_table(number).title
    return f"{number} {subject}" + (f", {remark.rpartition(', ')[2]}" if remark else "")


def _sum_by_method(judged: Sequence[Judged]) -> dict[str, Count]:
    found = {}
    for method in dict.fromkeys(one.method for one in judged):
        own = [one for one in judged if one.method == method]
        total = sum((one.tally for one in own), Tally())
        mark = FOREIGN if any(one.is_foreign for one in own) else ""
        found[method] = Count(total.agree, total.judged, total.filled, mark)
    return found
