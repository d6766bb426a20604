"""Numbers of a page held against the records that its markers name (see number_blocks.py)."""

import json
import re
import runpy
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from sfao.experiment.record import Record
from sfao.reports.comparison import compare_records
from sfao.reports.comparison_formats import as_markdown
from sfao.reproduction.archive import read_lines
from tests.docs.number_blocks import DECIMAL, ROOT, Block, agrees, numbers_in


def find_fault(block: Block, root: Path = ROOT) -> str:
    """Return what is wrong with the first number of a block that its records do not have; empty when all agree."""
    kind, name, rule = block.marker or ("", "", "")
    file = root / name
    if not file.exists():
        return f"{block.where}: there is no {name}"
    if kind == "printed by":
        fault = _find_strange_number(block.text, _numbers_printed_by(file), f"{name} prints")
    elif file.suffix == ".md":
        fault = _find_strange_number(block.text, tuple(numbers_in(file.read_text())), f"{name} has")
    elif file.suffix == ".json":
        fault = _check_values(block.text, json.loads(file.read_text()), rule)
    elif rule == "compare":
        fault = _check_comparison(block.text, read_lines(file))
    else:
        fault = _check_rows(block.text, read_lines(file), rule)
    return f"{block.where}: {fault}" if fault else ""


# -- Pages and programs: every decimal number of the block is among their numbers ----------------------------


def _find_strange_number(text: str, known: Sequence[str], whose: str) -> str:
    values = [float(number.replace(",", "")) for number in known]
    for written in DECIMAL.findall(text):
        # A program may print MB where the page has GB.
        if not any(agrees(written, value) or agrees(written, value / 1000) for value in values):
            return f"{whose} no {written}"
    return ""


@cache
def _numbers_printed_by(program: Path) -> tuple[str, ...]:
    with redirect_stdout(StringIO()) as printed:
        runpy.run_path(str(program), run_name="__main__")
    return tuple(numbers_in(printed.getvalue()))


# -- Rows ----------------------------------------------------------------------------------------------------


def _check_comparison(text: str, records: list[Record]) -> str:
    """Check lines that begin with a row of the comparison: their numbers are those that `sfao compare` prints in it."""
    rows = {}
    for line in as_markdown(compare_records(records)).splitlines():
        if line.startswith("| "):
            name = _first_cell(line)
            rows[name] = [float(number.replace(",", "")) for number in numbers_in(line.replace("*", ""))]
    return _check_lines(text, rows, _find_unprinted)


def _check_rows(text: str, records: list[Record], rule: str) -> str:
    """Check lines that begin with a key: their numbers are those that the rule asks for, of the records of that key."""
    wanted, by, key = rule.rpartition(" by ")
    if not by:
        return f"a rule must be `compare` or `NUMBER, NUMBER ± by KEY`, got {rule!r}"
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(str(_look_up(record, key)), []).append(record)
    asked = [_parse(part.strip()) for part in wanted.split(",")]
    rows = {name: [value for ask in asked for value in ask(own)] for name, own in groups.items()}
    return _check_lines(text, rows, _find_unwritten)


def _parse(text: str) -> Callable[[list[Record]], list[float]]:
    """Return the function of records that `100 * metrics.name ±` stands for: their mean, and with ± its deviation."""
    name, spread = text.removesuffix("±").strip(), text.endswith("±")
    factor, star, rest = name.rpartition("*")
    scale = float(factor) if star else 1.0

    def values(records: list[Record]) -> list[float]:
        found = [scale * float(_look_up(record, rest.strip())) for record in records]
        return [fmean(found), stdev(found)] if spread else [fmean(found)]

    return values


def _look_up(record: Record, name: str) -> Any:
    value: Any = {**vars(record), **record.config, **vars(record)["metrics"]}
    for part in name.split("."):
        value = value[part]
    return f"{value:g}" if isinstance(value, float) and name.startswith("options") else value


def _check_lines(text: str, rows: dict[str, list[float]], find_missing: "Search") -> str:
    """Check that the rows of the text are rows of the records, with their numbers."""
    lines = {_first_cell(line): line for line in text.splitlines() if _decimals(line)}
    for name, line in lines.items():
        if name not in rows:
            return f"the records have no row {name!r}, only {', '.join(rows)}"
        missing = find_missing(_decimals(line), rows[name])
        if missing:
            return f"row {name!r} has no {missing}: {line.strip()}"
    return "" if lines else "it has no row with a decimal number"


def _decimals(line: str) -> list[str]:
    """Return the decimal numbers of a line; values of settings, name=value, are none of them."""
    return DECIMAL.findall(re.sub(r"\S+=\S+", "", line.replace("*", "")))


Search = Callable[[Sequence[str], Sequence[float]], str]


def _find_unprinted(written: Sequence[str], printed: Sequence[float]) -> str:
    """Return the first number of a line that is not among those printed, in their order; it may leave some out."""
    left = list(printed)
    for number in written:
        while left and not agrees(number, left[0]):
            left.pop(0)
        if not left:
            return f"{number} in the records"
        left.pop(0)
    return ""


def _find_unwritten(written: Sequence[str], wanted: Sequence[float]) -> str:
    """Return the first value that is not among the numbers of a line, in their order; it may have others."""
    left = list(written)
    for value in wanted:
        while left and not agrees(left[0], value):
            left.pop(0)
        if not left:
            return f"{value:.6g}, which the records have"
        left.pop(0)
    return ""


def _first_cell(line: str) -> str:
    cells = [cell.strip(" *`") for cell in line.split("|") if cell.strip()]
    first = cells[0] if "|" in line and cells else line.strip().split("  ")[0]
    return re.sub(r" \(.*\)$", "", first)


# -- Values of a file ----------------------------------------------------------------------------------------


def _check_values(text: str, values: dict[str, Any], rule: str) -> str:
    """Check that the named values stand in the text, in their order."""
    left = numbers_in(text)
    for name in (part.strip() for part in rule.split(",")):
        value: Any = values
        for part in name.split("."):
            value = value[part]
        while left and not agrees(left[0], float(value)):
            left.pop(0)
        if not left:
            return f"`{name}` is {value}, which does not stand where it should"
    return ""
