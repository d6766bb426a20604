"""Numbers of a page held against the records that its markers name (see number_blocks.py)."""

import json
import re
import runpy
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from statistics import fmean, stdev
from typing import Any
from unittest.mock import patch

from sfao.lab.paper.archive import read_lines
from sfao.lab.report.comparison import compare_records
from sfao.lab.report.comparison_table import as_markdown
from sfao.lab.run.record import Record
from tests.docs.number_blocks import DECIMAL, ROOT, Block, agrees, numbers_in, strip_settings

Row = Record | dict[str, Any]


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
        found = json.loads(file.read_text())
        if " by " in rule:
            fault = _check_rows(block.text, found if isinstance(found, list) else found["rows"], rule)
        else:
            fault = _check_values(block.text, found, rule)
    elif rule == "compare":
        fault = _check_comparison(block.text, read_lines(file))
    else:
        fault = _check_rows(block.text, read_lines(file), rule)
    return f"{block.where}: {fault}" if fault else ""


# -- Pages and programs: every decimal number of the block is among their numbers ----------------------------


def _find_strange_number(text: str, known: Sequence[str], whose: str) -> str:
    values = [float(number.replace(",", "")) for number in known]
    for written in DECIMAL.findall(text):
        # They may have MB where the block has GB, and percent where it has shares.
        if not any(agrees(written, value / unit) for value in values for unit in (1, 100, 1000)):
            return f"{whose} no {written}"
    return ""


@cache
def _numbers_printed_by(program: Path) -> tuple[str, ...]:
    with redirect_stdout(StringIO()) as printed, patch.object(sys, "argv", [str(program)]):
        runpy.run_path(str(program), run_name="__main__")
    return tuple(numbers_in(printed.getvalue()))


# -- Rows ----------------------------------------------------------------------------------------------------


def _check_comparison(text: str, records: list[Record]) -> str:
    """Check lines that begin with a row of the comparison: their numbers are those that `sfao compare` prints in it."""
    rows = {}
    for line in as_markdown(compare_records(records)).splitlines():
        if line.startswith("| "):
            name, rest = _split_line(line)
            rows[name] = [float(number.replace(",", "")) for number in numbers_in(rest.replace("*", ""))]
    return _check_lines(text, rows, _find_unprinted)


def _check_rows(text: str, records: Sequence[Row], rule: str) -> str:
    """Check lines that begin with keys: their numbers are those that the rule asks for, of the records of the keys."""
    wanted, by, names = rule.rpartition(" by ")
    if not by:
        return f"a rule must be `compare` or `NUMBER, NUMBER ± by KEY`, got {rule!r}"
    keys = [name.strip() for name in names.split(",")]
    groups: dict[str, list[Row]] = {}
    for record in records:
        groups.setdefault(", ".join(_write_key(_look_up(record, key)) for key in keys), []).append(record)
    asked = [_parse(part.strip()) for part in wanted.split(",")]
    rows = {name: [value for ask in asked for value in ask(own)] for name, own in groups.items()}
    return _check_lines(text, rows, _find_unwritten, len(keys))


def _parse(text: str) -> Callable[[Sequence[Row]], list[float]]:
    """Return the function of records that `100 * metrics.name ±` stands for: their mean, and with ± its deviation."""
    spread = text.endswith("±")
    scale, name = _split_factor(text.removesuffix("±"))

    def values(records: Sequence[Row]) -> list[float]:
        found = [scale * _as_number(_look_up(record, name)) for record in records]
        return [fmean(found), stdev(found)] if spread else [fmean(found)]

    return values


def _split_factor(text: str) -> tuple[float, str]:
    """Return the factor before the star of `100 * name`, 1 without, and the name."""
    factor, star, name = text.rpartition("*")
    return (float(factor) if star else 1.0), name.strip()


def _as_number(value: Any) -> float:
    """Return a number; of what is listed, such as rollbacks, how many there are."""
    return float(len(value) if isinstance(value, list) else value)


def _look_up(row: Row, name: str) -> Any:
    """Return a number or a setting; None where a part of the settings is not there, such as a guard."""
    value: Any = row if isinstance(row, dict) else {**vars(row), **row.config, **row.metrics, "learned": _learned(row)}
    for part in name.split("."):
        value = value if value is None else value[part]
    return value


def _learned(record: Record) -> float:
    """Return the mean accuracy on each task right after it was learned."""
    return fmean(row[number] for number, row in enumerate(record.accuracy_matrix))


def _write_key(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _check_lines(text: str, rows: dict[str, list[float]], find_missing: "Search", keys: int = 1) -> str:
    """Check that the rows of the text are rows of the records, with their numbers."""
    found = [_split_line(line, keys) for line in text.splitlines()]
    lines = {name: rest for name, rest in found if _decimals(rest)}
    for name, line in lines.items():
        if name not in rows:
            return f"the records have no row {name!r}, only {'; '.join(rows)}"
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


def _split_line(line: str, keys: int = 1) -> tuple[str, str]:
    """Return the first cells of a line, without what stands in brackets, and its other cells."""
    cells = [cell for cell in line.split("|") if cell.strip()] if "|" in line else line.strip().split("  ")
    names = [re.sub(r" \(.*\)$", "", cell.strip(" *`")) for cell in cells[:keys]]
    return ", ".join(names), " | ".join(cells[keys:])


# -- Values of a file ----------------------------------------------------------------------------------------


def _check_values(text: str, values: Any, rule: str) -> str:
    """Check that the named values stand in the text, in their order, and no decimal beside them."""
    left = numbers_in(strip_settings(text))
    for name in re.split(r",\s*(?![^\[]*\])", rule):
        try:
            factor, path = _split_factor(name)
            value = factor * _as_number(_pick(values, path))
        except LookupError as error:
            return f"its record has no `{name}`: {error}"
        skipped = []
        while left and not agrees(left[0], value):
            skipped.append(left.pop(0))
        if not left:
            return f"`{name}` is {value:.6g}, which does not stand where it should"
        left.pop(0)
        if strange := [number for number in skipped if "." in number]:
            return f"{strange[0]} stands before `{name}`, {value:.6g}, and is of no record"
    strange = [number for number in left if "." in number]
    return f"{strange[0]} is of no record" if strange else ""


def _pick(values: Any, path: str) -> Any:
    """Return the value at a path: names with points between, and in brackets what the row that is meant has."""
    for row, name in re.findall(r"\[([^\]]+)\]|([^.\[\]]+)", path):
        if name:
            values = values[name]
            continue
        wanted = {part.strip() for part in row.split(";")}
        found = [each for each in values if wanted <= {_write_key(value) for value in each.values()}]
        if len(found) != 1:
            raise LookupError(f"{len(found)} rows have {row}")
        values = found[0]
    return values
