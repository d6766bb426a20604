"""The columns of a comparison: in text, and on the page, where readers sort by them."""

from collections.abc import Callable, Sequence

from sfao.lab.report.comparison import Group, Row
from sfao.lab.run.statistics import Spread
from sfao.lab.tables import Column, best_among

#: Marks a method that stores data where there is no room for words.
MARK = "*"
METHOD = Column[Row]("method", lambda row: f"{row.method} (stores data)" if row.stores_data else row.method, wraps=True)
MARKED_METHOD = Column[Row]("method", lambda row: f"{row.method} {MARK}" if row.stores_data else row.method, wraps=True)
INTERVAL = Column[Row](
    "95 % interval",
    lambda row: format_interval(row.accuracy),
    lambda row: row.accuracy.low if row.accuracy else None,
    align="right",
    descending=True,
)
TIMES_SGD = Column[Row](
    "\N{MULTIPLICATION SIGN} sgd",
    lambda row: "" if row.times_sgd is None else f"{row.times_sgd:.1f}",
    lambda row: row.times_sgd,
    align="right",
)
ROLLBACKS = Column[Row](
    "rollbacks",
    lambda row: "" if row.rollbacks is None else f"{row.rollbacks:.1f}",
    lambda row: row.rollbacks,
    align="right",
)
TROUBLE = Column[Row]("notes", lambda row: row.trouble, is_trouble=lambda row: bool(row.trouble))


def text_columns(group: Group) -> list[Column[Row]]:
    """Return the columns of a comparison as text: the time and its multiple of sgd's share one."""
    return [
        METHOD,
        _seeds("n"),
        _accuracy(group),
        INTERVAL,
        _learnt(group, lambda row: f"{row.learnt.mean:.3f}" if row.learnt else ""),
        _forgetting(group),
        _memory(group),
        _time(group, format_time_and_multiple),
        _p_value(group),
        *_list_rollbacks(group),
        TROUBLE,
    ]


def page_columns(group: Group) -> list[Column[Row]]:
    """Return the columns of a comparison on the page: every number has its own."""
    return [
        METHOD,
        _seeds("seeds"),
        _accuracy(group),
        INTERVAL,
        _learnt(group, lambda row: format_mean(row.learnt)),
        _forgetting(group),
        _memory(group),
        _time(group, format_time),
        TIMES_SGD,
        _p_value(group),
        *_list_rollbacks(group),
        TROUBLE,
    ]


def drop_needless(columns: list[Column[Row]], group: Group) -> list[Column[Row]]:
    """Return the columns without the one of trouble where there is none."""
    troubled = any(row.trouble for row in group.rows)
    return [column for column in columns if column is not TROUBLE or troubled]


# -- Columns that rank methods that are no bounds and all of whose runs are done, by the digits that are shown ------


def _accuracy(group: Group) -> Column[Row]:
    return Column(
        "accuracy",
        lambda row: format_mean(row.accuracy),
        lambda row: _mean(row.accuracy),
        is_best=_near_the_best(_rivals(group), lambda row: row.accuracy, max),
        align="right",
        descending=True,
    )


def _learnt(group: Group, text: Callable[[Row], str]) -> Column[Row]:
    return Column(
        "learnt",
        text,
        lambda row: _mean(row.learnt),
        is_best=_near_the_best(_rivals(group), lambda row: row.learnt, max),
        align="right",
        descending=True,
    )


def _forgetting(group: Group) -> Column[Row]:
    return Column(
        "forgetting",
        lambda row: format_mean(row.forgetting),
        lambda row: _mean(row.forgetting),
        is_best=_near_the_best(_rivals(group), lambda row: row.forgetting, min),
        align="right",
    )


def _near_the_best(
    rows: Sequence[Row], spread_of: Callable[[Row], Spread | None], choose: Callable[[Sequence[float]], float]
) -> Callable[[Row], bool]:
    """Return the predicate of the best rows, and of all whose mean lies in the 95 % interval of one of them."""
    shown = {row.method: spread_of(row) for row in rows}
    is_first = best_among(rows, lambda row: round(_mean(shown[row.method]) or 0.0, 3), choose)
    best = [spread for row in rows if (spread := shown[row.method]) and is_first(row)]

    def is_near(row: Row) -> bool:
        mean = _mean(shown.get(row.method))
        return mean is not None and (is_first(row) or any(is_within(mean, spread) for spread in best))

    return is_near


def is_within(value: float, spread: Spread) -> bool:
    """Tell whether a value lies in the 95 % interval; one run alone has none."""
    return spread.low is not None and spread.high is not None and spread.low <= value <= spread.high


def _memory(group: Group) -> Column[Row]:
    return Column(
        "held",
        format_memory,
        lambda row: row.memory_bytes,
        is_best=best_among(_rivals(group), lambda row: row.memory_bytes or 0.0, min),
        align="right",
    )


def _time(group: Group, text: Callable[[Row], str]) -> Column[Row]:
    return Column(
        "time",
        text,
        lambda row: row.seconds,
        is_best=best_among(_rivals(group), lambda row: round(row.seconds or 0.0, 1), min),
        align="right",
    )


def _rivals(group: Group) -> list[Row]:
    return [row for row in group.rows if row.is_complete and not row.is_bound]


# -- Other columns ---------------------------------------------------------------------------------------------------


def _seeds(title: str) -> Column[Row]:
    return Column(
        title,
        lambda row: str(row.done) if row.is_complete else f"{row.done} of {row.asked}",
        lambda row: row.done,
        align="right",
        descending=True,
    )


def _p_value(group: Group) -> Column[Row]:
    return Column(
        "p",
        lambda row: "baseline" if row.method == group.baseline else format_p_value(row),
        lambda row: row.test.p if row.test else None,
        align="right",
    )


def _list_rollbacks(group: Group) -> list[Column[Row]]:
    """Return the column of rollbacks where any run had a guard."""
    return [ROLLBACKS] if any(row.rollbacks is not None for row in group.rows) else []


# -- Texts -----------------------------------------------------------------------------------------------------------


def _mean(spread: Spread | None) -> float | None:
    return spread.mean if spread else None


def format_mean(spread: Spread | None) -> str:
    if spread is None:
        return ""
    return f"{spread.mean:.3f}" if spread.std is None else f"{spread.mean:.3f} ± {spread.std:.3f}"


def format_interval(spread: Spread | None) -> str:
    if spread is None or spread.low is None:
        return ""
    return f"{spread.low:.3f}, {spread.high:.3f}"


def format_memory(row: Row) -> str:
    """Return the bytes held; `all data` of joint in records of older versions, which did not count them."""
    if row.memory_bytes is None:
        return ""
    return "all data" if row.stores_data and row.memory_bytes == 0 else format_size(row.memory_bytes)


def format_time(row: Row) -> str:
    return "" if row.seconds is None else f"{row.seconds:.1f} s"


def format_time_and_multiple(row: Row) -> str:
    return format_time(row) + ("" if row.times_sgd is None else f" {row.times_sgd:4.1f}x")


def format_size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def format_p_value(row: Row) -> str:
    if row.test is None:
        return ""
    if row.test.p is None:
        return "-"
    return "<0.0001" if row.test.p < 1e-4 else f"{row.test.p:.4f}"
