"""The headline of a comparison: who is ahead, by how much, whether chance explains it, and at what cost."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite

from sfao.lab.console import shorten
from sfao.lab.methods import METHODS
from sfao.lab.metrics import PairedTest, Spread
from sfao.lab.report.comparison import (
    REFERENCE,
    Row,
    compare_accuracies,
    compare_records,
    group_records,
    split_into_rows,
)
from sfao.lab.report.comparison_table import format_mean, format_size
from sfao.lab.run.record import Record

#: A difference with a p value below this is called a win, any other is not.
SIGNIFICANT = 0.05
#: Names in a list, and letters of a name; tables have all of them.
MOST_NAMES, MOST_LETTERS = 4, 60


@dataclass(frozen=True)
class Finding:
    """The headline of one group of runs, and the sentences that belong to it."""

    #: The title of the group.
    title: str
    headline: str
    #: Cost, forgetting, methods that store data, runs that failed.
    details: list[str]

    @property
    def text(self) -> str:
        return " ".join((self.headline, *self.details))


def describe_finding(records: Iterable[Record]) -> str:
    """Return a few sentences on these runs, one line per group of runs that may be compared.

    Methods that store examples of past tasks are named as such and never win over those that store none. The text holds
    names as the records have them: escape its control characters before you print it.
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
    finished = [row for row in rows if row.accuracy and isfinite(row.accuracy.mean)]
    complete = [row for row in finished if row.is_complete]
    ranked = sorted(complete or finished, key=lambda row: -_mean(row.accuracy))
    without_data = [row for row in ranked if not row.stores_data]
    rivals = without_data or [row for row in ranked if not row.is_bound] or ranked
    if not rivals:
        return Finding(title, _describe_failure(rows), [])
    if len(rivals) > 1:
        first, second = ([record for record in records[row.method] if record.status == "done"] for row in rivals[:2])
        lead = _describe_lead(rivals, compare_accuracies(first, second, rivals[1].method))
    else:
        lead = _describe_single(rivals[0], rows)
    storing = [f"{_name(row)} {_mean(row.accuracy):.3f}" for row in ranked if row not in rivals]
    left = [f"{_name(row)} ({row.failures or 'no accuracy'})" for row in rows if row not in ranked]
    details = [
        f"Cost: {'; '.join(f'{_name(row)} {_describe_cost(row)}' for row in rivals[:2])}.",
        _describe_forgetting(rivals, rows),
        f"Methods that store data, not ranked: {_list(storing)}." if storing else "",
        f"Not ranked, as not all runs ended well: {_list(left)}." if left else "",
    ]
    return Finding(title, lead, [sentence for sentence in details if sentence])


def _describe_failure(rows: Sequence[Row]) -> str:
    asked = sum(row.asked for row in rows)
    if asked == 1:
        return f"The only run, of {_name(rows[0])}, did not end well: {rows[0].failures.removeprefix('1 ')}."
    return f"None of the {asked} runs ended well: {_list([f'{_name(row)} {row.failures}' for row in rows])}."


def _describe_single(row: Row, rows: Sequence[Row]) -> str:
    storing = ", which stores data," if row.stores_data else ""
    alone = ", with nothing to compare it with" if len(rows) == 1 else ""
    return (
        f"{_name(row)}{storing} reaches an accuracy of {format_mean(row.accuracy)} on {_count_seeds(row.done)}{alone}."
    )


def _describe_lead(rivals: Sequence[Row], test: PairedTest) -> str:
    first, second = (_name(row) for row in rivals[:2])
    means = [f"{_mean(row.accuracy):.3f}" for row in rivals[:2]]
    field, p = _describe_field(rivals), _format_p(test)
    # The means are over all seeds of each row, the test over common seeds: they may disagree on who is ahead.
    if test.p is not None and (test.p >= SIGNIFICANT or (test.difference or 0.0) <= 0):
        reached = " and ".join(dict.fromkeys(means))
        return f"{first} and {second}, the best of {field}, cannot be told apart: accuracy {reached} ({p})."
    verb = "is ahead of" if test.p is None else "beats"
    ahead = _mean(rivals[0].accuracy) - _mean(rivals[1].accuracy)
    return (
        f"{first} {verb} {second} by {ahead:.3f} of accuracy, {' to '.join(means)} ({p}), and is the best of {field}."
    )


def _format_p(test: PairedTest) -> str:
    if test.p is None:
        return f"no p value: {test.reason}"
    return f"p {'< 0.0001' if test.p < 1e-4 else f'= {test.p:.2g}'}, paired over {_count_seeds(test.n)}"


def _describe_field(rivals: Sequence[Row]) -> str:
    """Return `4 methods that store no data`; methods that aren't known here are `not known to store data`."""
    methods = {row.method.split(" ")[0] for row in rivals}
    noun = "methods" if len(methods) == len(rivals) else "settings"
    if all(row.stores_data for row in rivals):
        return f"{len(rivals)} {noun} that store data"
    known = all(map(METHODS.is_known, methods))
    return f"{len(rivals)} {noun} {'that store no data' if known else 'not known to store data'}"


def _describe_cost(row: Row) -> str:
    times = "" if row.times_sgd is None or row.method == REFERENCE else f" ({row.times_sgd:.1f} times {REFERENCE})"
    return f"{row.seconds or 0.0:.1f} s a run{times}, {format_size(row.memory_bytes or 0.0)} held"


def _describe_forgetting(rivals: Sequence[Row], rows: Sequence[Row]) -> str:
    """Return the forgetting of the first two, and of sgd."""
    shown = [*rivals[:2], *(row for row in rows if row.method == REFERENCE and row not in rivals[:2])]
    told = [f"{_name(row)} {_mean(row.forgetting):.3f}" for row in shown if row.forgetting]
    return f"Forgotten: {', '.join(told)}." if told else ""


def _name(row: Row) -> str:
    return shorten(row.method, MOST_LETTERS)


def _mean(spread: Spread | None) -> float:
    return spread.mean if spread else 0.0


def _count_seeds(count: int) -> str:
    return f"{'one' if count == 1 else count} seed{'s' * (count != 1)}"


def _list(items: Sequence[str]) -> str:
    more = f" and {len(items) - MOST_NAMES} more" if len(items) > MOST_NAMES else ""
    return ", ".join(items[:MOST_NAMES]) + more
