"""The headline of a comparison: who is ahead, by how much, whether chance explains it, and at what cost."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sfao.lab.console import shorten
from sfao.lab.metrics import PairedTest
from sfao.lab.report.comparison import REFERENCE, Group, Row, compare_accuracies
from sfao.lab.report.comparison_table import format_mean, format_size

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


def describe_findings(groups: Iterable[Group]) -> str:
    """Return a few sentences on these groups, one line for each.

    The text holds names as the records have them: escape its control characters before you print it.
    """
    found = [find_finding(group) for group in groups]
    texts = [" ".join((finding.headline, *finding.details)) for finding in found]
    if len(found) == 1:
        return texts[0]
    return "\n".join(f"{finding.title}: {text}" for finding, text in zip(found, texts, strict=True))


def find_finding(group: Group) -> Finding:
    """Return the headline of a group. Methods that store data never win over those that store none."""
    finished = [row for row in group.rows if row.done]
    ranked = sorted([row for row in finished if row.is_complete] or finished, key=lambda row: -_accuracy(row))
    if not ranked:
        failed = [f"{_name(row)} {row.failures}" for row in group.rows]
        return Finding(group.title, f"No run ended well: {_list(failed)}.", [])
    rivals = [row for row in ranked if not row.stores_data] or [row for row in ranked if not row.is_bound] or ranked
    if len(rivals) > 1:
        first, second = rivals[:2]
        headline = _compare(first, second, rivals)
    else:
        reached = f"{format_mean(rivals[0].accuracy)} on {_seeds(rivals[0].done)}"
        headline = f"{_name(rivals[0])} reaches an accuracy of {reached}."
    storing = [f"{_name(row)} {_accuracy(row):.3f}" for row in ranked if row not in rivals]
    left = [f"{_name(row)} ({row.failures})" for row in group.rows if row not in ranked]
    forgetful = [*rivals[:2], *(row for row in group.rows if row.method == REFERENCE and row not in rivals[:2])]
    forgotten = [f"{_name(row)} {row.forgetting.mean:.3f}" for row in forgetful if row.forgetting]
    details = [
        f"Cost: {'; '.join(f'{_name(row)} {_describe_cost(row)}' for row in rivals[:2])}.",
        f"Forgotten: {', '.join(forgotten)}.",
        f"Methods that store data, not ranked: {_list(storing)}." if storing else "",
        f"Not ranked, as not all runs ended well: {_list(left)}." if left else "",
    ]
    return Finding(group.title, headline, [sentence for sentence in details if sentence])


def _compare(first: Row, second: Row, rivals: Sequence[Row]) -> str:
    test = compare_accuracies(first.records, second.records, second.method)
    means = f"{_accuracy(first):.3f} to {_accuracy(second):.3f} ({_describe_p(test)})"
    is_sweep = len({row.method.split(" ")[0] for row in rivals}) < len(rivals)
    field = f"the best of {len(rivals)} {'settings' if is_sweep else 'methods'}"
    # The means are over all seeds of each row, the test over common seeds: they may disagree on who is ahead.
    if test.p is not None and (test.p >= SIGNIFICANT or (test.difference or 0.0) <= 0):
        return f"{_name(first)} and {_name(second)}, {field}, cannot be told apart: accuracy {means}."
    verb = "is ahead of" if test.p is None else "beats"
    ahead = f"{_accuracy(first) - _accuracy(second):.3f} of accuracy"
    return f"{_name(first)} {verb} {_name(second)} by {ahead}, {means}, and is {field}."


def _describe_p(test: PairedTest) -> str:
    if test.p is None:
        return f"no p value: {test.reason}"
    return f"p {'< 0.0001' if test.p < 1e-4 else f'= {test.p:.2g}'}, paired over {_seeds(test.n)}"


def _describe_cost(row: Row) -> str:
    times = "" if row.times_sgd is None or row.method == REFERENCE else f" ({row.times_sgd:.1f} times {REFERENCE})"
    return f"{row.seconds or 0.0:.1f} s a run{times}, {format_size(row.memory_bytes or 0.0)} held"


def _name(row: Row) -> str:
    return shorten(row.method, MOST_LETTERS)


def _accuracy(row: Row) -> float:
    return row.accuracy.mean if row.accuracy else 0.0


def _seeds(count: int) -> str:
    return f"{'one' if count == 1 else count} seed{'s' * (count != 1)}"


def _list(items: Sequence[str]) -> str:
    more = f" and {len(items) - MOST_NAMES} more" if len(items) > MOST_NAMES else ""
    return ", ".join(items[:MOST_NAMES]) + more
