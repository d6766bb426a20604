"""Numbers on pages, compared with the records that a marker above their paragraph or table names.

A marker is an HTML comment of its own:

    <!-- from docs/records/NAME.jsonl: 100 * average_accuracy ±, lr by method -->
        a table: the first cell of a row is the method, and the row has the mean ± standard deviation, then the mean;
        two keys (`by model, variant`) are the first two cells. NAME.json is a list of rows, or has one as `rows`.
    <!-- from docs/records/NAME.json: one.name, 100 * another, rows[SGD; mlp].ms -->
        a text: the decimals in it are these values in this order; in brackets, the cells that select a row
    <!-- from docs/reproduction.md -->
        every decimal is a number of that page
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from sfao.lab.paper.archive import read_lines
from sfao.lab.run.record import Record

ROOT = Path(__file__).parents[2]
MARKER = re.compile(r"^<!-- from ([^\s:]+)(?:: ((?:.|\n)+?))? -->$", re.MULTILINE)
#: Numbers as results are written: with a point, or a comma of thousands, or as a ratio (20x); not versions or names.
NUMBER = re.compile(r"(?<![\w.,#/-])[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?!(?!x\b)[\w/]|[.,-]\d)")
DECIMAL = re.compile(r"(?<![\w.,/-])[+-]?(?:\d{1,3}(?:,\d{3})+|\d*)\.\d+(?!(?!x\b)[\w/]|[.,]\d)")
#: A command that repeats the numbers.
COMMAND = re.compile(r"\b(sfao (run|compare|demo|tune|reproduce|report|bench)|python \S+\.py|pytest|make \w+)\b")

Row = Record | dict[str, Any]


@dataclass(frozen=True)
class Block:
    """A paragraph, list or table of a page, its section, and the file and rule of the marker above it."""

    page: Path
    line: int
    text: str
    section: str
    marker: tuple[str, str] | None = None

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def has_results(self) -> bool:
        """True if a reader takes its numbers for measured: decimals in a table, or several in a text."""
        return len(DECIMAL.findall(drop_settings(self.text))) >= (1 if self.text.lstrip().startswith("|") else 2)

    @property
    def has_command(self) -> bool:
        return bool(COMMAND.search(self.section))


def read_blocks(page: Path) -> list[Block]:
    """Return the blocks of a page in order, without code and figures."""
    text = page.read_text()
    # Every section has its heading and all text up to the next one.
    sections = {part.split("\n", 1)[0]: part for part in re.split(r"^(?=#)", text, flags=re.MULTILINE)}
    found, marker, section = [], None, sections.get("", "")
    for line, block in _split(text):
        if block.startswith("#"):
            section = sections.get(block.split("\n", 1)[0], "")
        match = MARKER.search(block)
        if match:
            marker = (match[1], " ".join((match[2] or "").split()))
            block = MARKER.sub("", block).strip("\n")
        if block.strip() and not block.startswith(("#", "```", "![")):
            found.append(Block(page, line, block, section, marker))
            marker = None
    return found


def _split(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, block) of what blank lines separate; fenced code is one block."""
    lines, begin, is_fenced = [], 1, False
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        is_fenced ^= line.startswith("```")
        if line.strip() or is_fenced:
            begin = begin if lines else number
            lines.append(line)
        elif lines:
            yield begin, "\n".join(lines)
            lines = []


def drop_settings(text: str) -> str:
    """Return a text without code, name=value and addresses of links."""
    return re.sub(r"`[^`]*`|\]\([^)]*\)|\S+=\S+", "", text)


def numbers_in(text: str) -> list[str]:
    """Return the numbers of a text in order, as written."""
    return [match for match in NUMBER.findall(text) if any(letter.isdigit() for letter in match)]


def agrees(written: str, value: float) -> bool:
    """Return True if a number as written is this value, rounded to the written digits."""
    digits = len(written.partition(".")[2])
    return abs(float(written.replace(",", "")) - value) <= 0.5 * 10.0**-digits * (1 + 1e-9)


def find_fault(block: Block, root: Path = ROOT) -> str:
    """Return what is wrong with the first number that differs from the records; empty if all agree."""
    name, rule = block.marker or ("", "")
    file = root / name
    if not file.exists():
        return f"{block.where}: there is no {name}"
    if file.suffix == ".md":
        fault = _check_page(block.text, numbers_in(file.read_text()))
    elif " by " in rule:
        found = read_lines(file) if file.suffix == ".jsonl" else json.loads(file.read_text())
        fault = _check_rows(block.text, found["rows"] if isinstance(found, dict) else found, rule)
    else:
        fault = _check_values(block.text, json.loads(file.read_text()), rule)
    return f"{block.where}: {fault}" if fault else ""


def _check_page(text: str, known: Sequence[str]) -> str:
    values = [float(number.replace(",", "")) for number in known]
    for written in DECIMAL.findall(text):
        # A page may have MB where the block has GB.
        if not any(agrees(written, value / unit) for value in values for unit in (1, 100, 1000)):
            return f"the page has no {written}"
    return ""


# -- Tables --------------------------------------------------------------------------------------------------


def _check_rows(text: str, records: Sequence[Row], rule: str) -> str:
    """Check that the lines that begin with keys have the numbers of the rule, in its order."""
    wanted, _, names = rule.rpartition(" by ")
    keys = [name.strip() for name in names.split(",")]
    groups: dict[str, list[Row]] = {}
    for record in records:
        groups.setdefault(", ".join(_write_key(_look_up(record, key)) for key in keys), []).append(record)
    asked = [_parse(part.strip()) for part in wanted.split(",")]
    lines = {}
    for line in text.splitlines():
        name, rest = _split_line(line, len(keys))
        numbers = DECIMAL.findall(re.sub(r"\S+=\S+", "", rest.replace("*", "")))
        if numbers:
            lines[name] = numbers
    for name, numbers in lines.items():
        if name not in groups:
            return f"the records have no row {name!r}, only {'; '.join(groups)}"
        missing = _find_missing(numbers, [value for ask in asked for value in ask(groups[name])])
        if missing is not None:
            return f"row {name!r} has no {missing:.6g}, which the records have"
    return "" if lines else "it has no row with a decimal number"


def _find_missing(written: Sequence[str], wanted: Sequence[float]) -> float | None:
    """Return the first value that is not among the numbers of a line, in their order; the line may have others."""
    left = iter(written)
    for value in wanted:
        if not any(agrees(number, value) for number in left):
            return value
    return None


def _parse(text: str) -> Callable[[Sequence[Row]], list[float]]:
    """Return the function that computes `100 * name ±` of records: the mean, and the deviation of several."""
    factor, name = _split_factor(text.removesuffix("±"))

    def values(records: Sequence[Row]) -> list[float]:
        found = [factor * _as_number(_look_up(record, name)) for record in records]
        return [fmean(found), stdev(found)] if text.endswith("±") and len(found) > 1 else [fmean(found)]

    return values


def _split_factor(text: str) -> tuple[float, str]:
    factor, star, name = text.rpartition("*")
    return (float(factor) if star else 1.0), name.strip()


def _as_number(value: Any) -> float:
    """Return a number; of a list, such as rollbacks, its length."""
    return float(len(value) if isinstance(value, list) else value)


def _look_up(row: Row, name: str) -> Any:
    """Return a number or a setting; None for a part of settings that are not there, such as a guard."""
    if isinstance(row, dict):
        value: Any = row
    else:
        learned = fmean(accuracies[task] for task, accuracies in enumerate(row.accuracy_matrix))
        value = {**vars(row), **row.config, **row.metrics, "learned": learned}
    for part in name.split("."):
        value = value if value is None else value[part]
    return value


def _write_key(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _split_line(line: str, keys: int) -> tuple[str, str]:
    """Return the first cells of a line, without text in brackets, and the other cells."""
    cells = [cell for cell in line.split("|") if cell.strip()] if "|" in line else line.strip().split("  ")
    names = [re.sub(r" \(.*\)$", "", cell.strip()).strip(" *`") for cell in cells[:keys]]
    return ", ".join(names), " | ".join(cells[keys:])


# -- Texts ---------------------------------------------------------------------------------------------------


def _check_values(text: str, values: Any, rule: str) -> str:
    """Check that the named values are in the text in their order, and no other decimal."""
    left = numbers_in(drop_settings(text))
    for name in re.split(r",\s*(?![^\[]*\])", rule):
        factor, path = _split_factor(name)
        try:
            value = factor * _as_number(_pick(values, path))
        except LookupError as error:
            return f"its record has no `{name}`: {error}"
        place = next((place for place, number in enumerate(left) if agrees(number, value)), None)
        if place is None:
            return f"`{name}` is {value:.6g}, which is not where it should be"
        if strange := [number for number in left[:place] if "." in number]:
            return f"{strange[0]} before `{name}`, {value:.6g}, is in no record"
        left = left[place + 1 :]
    strange = [number for number in left if "." in number]
    return f"{strange[0]} is in no record" if strange else ""


def _pick(values: Any, path: str) -> Any:
    """Return the value at a path: names with points between, and in brackets the cells of a row."""
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
