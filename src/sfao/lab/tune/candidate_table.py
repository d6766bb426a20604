"""The table of candidates: their settings, what they reach on validation data, and which is best."""

from collections.abc import Sequence

from sfao.lab.report.comparison import compare_records
from sfao.lab.report.comparison_table import format_mean
from sfao.lab.report.tables import Column, Table
from sfao.lab.tune.candidate import Candidate, choose_best
from sfao.lab.tune.search import Search
from sfao.lab.tune.setting_text import shorten_names, write_value

#: Letters of an error that a row has room for; the record has it all.
MOST_LETTERS = 60


def make_table(candidates: Sequence[Candidate], search: Search, numbered: str = "") -> Table[Candidate]:
    """Return one row per candidate; `numbered` is the heading of a column with their numbers, if there is to be one."""
    best = choose_best(candidates)
    count = len(search.seeds)
    title = f"{search.method} on {search.benchmark}, {count} seed{'s' * (count != 1)}, on validation images"
    number = Column[Candidate](numbered, lambda row: str(row.number), align="right")
    names = shorten_names(candidates[0].settings if candidates else ())
    return Table(
        title,
        [
            *([number] if numbered else []),
            *(_setting_column(name, short) for name, short in names.items()),
            Column(
                "accuracy",
                lambda row: format_mean(row.accuracy) or ("" if row.score is None else f"{row.score:.3f}"),
                lambda row: row.score,
                is_best=lambda row: row is best,
                align="right",
            ),
            Column("forgetting", lambda row: format_mean(row.forgetting), align="right"),
            Column("learned", lambda row: format_mean(row.learning), align="right"),
            Column(
                "",
                lambda row: "best" if row is best else row.error[:MOST_LETTERS],
                wraps=True,
            ),
        ],
        candidates,
        write_notes(candidates, search),
    )


def write_notes(candidates: Sequence[Candidate], search: Search) -> list[str]:
    """Return what the numbers were measured on, and the warnings about the best."""
    share = f"{100 * search.share:.4g} %"
    notes = [
        f"Measured on {share} of the training images, held out of training; test images play no part. "
        "learned: accuracy on each task just after it was learned."
    ]
    groups = compare_records(record for each in candidates for record in each.records).groups
    notes += [group.caveat for group in groups[:1] if group.caveat]
    best = choose_best(candidates)
    if best is not None:
        warnings = dict.fromkeys(text for record in best.records for text in record.warnings)
        notes += [f"warning (the best): {text}" for text in warnings]
    return notes


def _setting_column(name: str, short: str) -> Column[Candidate]:
    return Column(short, lambda row: _write_cell(row.settings[name]), align="right")


def _write_cell(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else write_value(value)
