"""The finding of a comparison in words: who is ahead, by how much, whether chance explains it, and at what cost."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite

from sfao.lab.console import shorten
from sfao.lab.methods import METHODS
from sfao.lab.report.comparison import REFERENCE, Row, compare_records, group_records, split_into_rows
from sfao.lab.report.comparison_table import format_mean, format_size
from sfao.lab.run.record import Record
from sfao.lab.run.statistics import PairedTest, Spread, paired_test

#: A p value below this is called a win, any other is not.
SIGNIFICANT = 0.05
#: Names that are listed; more are counted.
MOST_NAMES = 4
#: Letters of a name in a sentence; tables have all of them.
MOST_LETTERS = 60


@dataclass(frozen=True)
class Finding:
    """What the runs of one group say: the headline, and the sentences that belong to it."""

    #: The group, in the words of its table.
    title: str
    headline: str
    #: What it costs, what is forgotten, what methods that store data reach, what did not end well.
    details: list[str]

    @property
    def text(self) -> str:
        return " ".join((self.headline, *self.details))


def describe_finding(records: Iterable[Record]) -> str:
    """Return the finding of these runs in a few sentences, one line per group of runs that may be compared.

    Methods that store examples of past tasks are named as such and never win over those that store none. The text holds
    names as the records have them: print it as any text from outside.
    """
    found = find_findings(records)
    if len(found) == 1:
        return found[0].text
    return "\n".join(f"{finding.title}: {finding.text}" for finding in found) or "There are no runs."


def find_findings(records: Iterable[Record]) -> list[Finding]:
    """Return one finding per group, in the order of `compare_records(records).groups`."""
    known = list(records)
    groups = zip(compare_records(known).groups, group_records(known), strict=True)
    return [_find(group.title, group.rows, split_into_rows(members)) for group, members in groups]


def _find(title: str, rows: Sequence[Row], records: dict[str, list[Record]]) -> Finding:
    ranked = _rank(rows)
    without = [row for row in ranked if not row.stores_data]
    rivals = without or [row for row in ranked if not row.is_bound] or ranked
    if not rivals:
        return Finding(title, _describe_failure(rows), [])
    lead = _describe_lead(rivals, _test(rivals, records)) if len(rivals) > 1 else _describe_single(rivals[0], rows)
    details = [
        _describe_cost(rivals[:2]),
        _describe_forgetting(rivals, rows),
        _list_storing([row for row in ranked if row not in rivals]),
        _list_left(rows, ranked),
    ]
    return Finding(title, lead, [sentence for sentence in details if sentence])


def _rank(rows: Sequence[Row]) -> list[Row]:
    """Return the rows all of whose runs are done, or else those with any, from the most accurate."""
    done = [row for row in rows if row.accuracy and isfinite(row.accuracy.mean)]
    whole = [row for row in done if row.is_complete]
    return sorted(whole or done, key=lambda row: -_mean(row.accuracy))


def _test(rivals: Sequence[Row], records: dict[str, list[Record]]) -> PairedTest:
    """Test the first against the second, on the seeds that both have done."""
    first, second = (
        {one.seed: one.metrics["average_accuracy"] for one in records[row.method] if one.status == "done"}
        for row in rivals[:2]
    )
    return paired_test(first, second, rivals[1].method)


# -- Headlines -------------------------------------------------------------------------------------------------------


def _describe_failure(rows: Sequence[Row]) -> str:
    asked = sum(row.asked for row in rows)
    if asked == 1:
        return f"The only run, of {_name(rows[0])}, did not end well: {rows[0].trouble.removeprefix('1 ')}."
    return f"None of the {asked} runs ended well: {_list([f'{_name(row)} {row.trouble}' for row in rows])}."


def _describe_single(row: Row, rows: Sequence[Row]) -> str:
    storing = ", which stores data," if row.stores_data else ""
    reached = f"{_name(row)}{storing} reaches an accuracy of {format_mean(row.accuracy)} on {_count_seeds(row.done)}"
    if len(rows) == 1:
        return f"{reached}, with nothing to compare it with."
    rivals = [other for other in rows if other.stores_data == row.stores_data and not other.is_bound]
    return (
        f"{reached}, the only one of {_describe_field(rivals)} that ended well." if len(rivals) > 1 else f"{reached}."
    )


def _describe_lead(rivals: Sequence[Row], test: PairedTest) -> str:
    first, second = rivals[:2]
    field, ahead = _describe_field(rivals), _mean(first.accuracy) - _mean(second.accuracy)
    accuracies = f"{_mean(first.accuracy):.3f} to {_mean(second.accuracy):.3f}"
    # Means are over all seeds of each, the test over those that both have: the two may disagree on who is ahead.
    if test.p is not None and (test.p >= SIGNIFICANT or (test.difference or 0.0) <= 0):
        reached = " and ".join(dict.fromkeys(f"{_mean(row.accuracy):.3f}" for row in (first, second)))
        return (
            f"{_name(first)} and {_name(second)}, the best of {field}, cannot be told apart: "
            f"accuracy {reached} ({_format_p(test)})."
        )
    won = test.p is not None
    lead = (
        f"{_name(first)} {'beats' if won else 'is ahead of'} {_name(second)} by {ahead:.3f} of accuracy, {accuracies}"
    )
    return f"{lead} ({_format_p(test) if won else _describe_doubt(test)}), and is the best of {field}."


def _describe_doubt(test: PairedTest) -> str:
    """Tell why a difference without a p value is not called a win."""
    if test.n > 1:
        return f"the same on each of {_count_seeds(test.n)}"
    return f"{_count_seeds(test.n, 'common ')}, too few to call it a win"


def _describe_field(rivals: Sequence[Row]) -> str:
    """`4 methods that store no data`; of methods that are not known here, nothing is claimed."""
    methods = {row.method.split(" ")[0] for row in rivals}
    noun = "methods" if len(methods) == len(rivals) else "settings"
    if all(row.stores_data for row in rivals):
        return f"{len(rivals)} {noun} that store data"
    known = all(map(METHODS.is_known, methods))
    return f"{len(rivals)} {noun} {'that store no data' if known else 'not known to store data'}"


# -- Details ---------------------------------------------------------------------------------------------------------


def _describe_cost(rows: Sequence[Row]) -> str:
    return f"Cost: {'; '.join(f'{_name(row)} {_cost(row)}' for row in rows)}."


def _cost(row: Row) -> str:
    times = "" if row.times_sgd is None or row.method == REFERENCE else f" ({row.times_sgd:.1f} times {REFERENCE})"
    return f"{row.seconds or 0.0:.1f} s a run{times}, {format_size(row.memory_bytes or 0.0)} held"


def _describe_forgetting(rivals: Sequence[Row], rows: Sequence[Row]) -> str:
    """Tell the forgetting of the first two, and of plain descent, which has nothing against it."""
    reference = [row for row in rows if row.method == REFERENCE and row not in rivals[:2]]
    told = [f"{_name(row)} {_mean(row.forgetting):.3f}" for row in (*rivals[:2], *reference) if row.forgetting]
    return f"Forgotten: {', '.join(told)}." if told else ""


def _list_storing(rows: Sequence[Row]) -> str:
    storing = [f"{_name(row)} {_mean(row.accuracy):.3f}" for row in rows]
    return f"Methods that store data, not ranked: {_list(storing)}." if storing else ""


def _list_left(rows: Sequence[Row], ranked: Sequence[Row]) -> str:
    """Tell which rows are left out of the ranking, and why."""
    left = [f"{_name(row)} ({row.trouble or 'no accuracy'})" for row in rows if row not in ranked]
    return f"Not ranked, as not all runs ended well: {_list(left)}." if left else ""


# -- Words -----------------------------------------------------------------------------------------------------------


def _name(row: Row) -> str:
    return shorten(row.method, MOST_LETTERS)


def _mean(spread: Spread | None) -> float:
    return spread.mean if spread else 0.0


def _format_p(test: PairedTest) -> str:
    p = "p < 0.0001" if (test.p or 0.0) < 1e-4 else f"p = {test.p:.2g}"
    return f"{p}, paired over {_count_seeds(test.n)}"


def _count_seeds(count: int, kind: str = "") -> str:
    number = {0: "no", 1: "one"}.get(count, str(count))
    return f"{number} {kind}seed{'s' * (count != 1)}"


def _list(items: Sequence[str]) -> str:
    more = f" and {len(items) - MOST_NAMES} more" if len(items) > MOST_NAMES else ""
    return ", ".join(items[:MOST_NAMES]) + more
