"""Blocks of Markdown pages that tell results, the records they say they come from, and the numbers in them.

A block is what blank lines separate: a paragraph, a list, a table, an indented or fenced text. A marker is an HTML
comment of its own, above a block or at its start, which a reader does not see:

    <!-- from docs/records/NAME.jsonl: compare -->            rows as `sfao compare` prints them, of these records
    <!-- from docs/records/NAME.jsonl: ours = 100 * metrics.average_accuracy by method -->
                                                              a column of a table: the mean of a number, row by row
    <!-- from docs/records/NAME.jsonl: average_accuracy ± by method, lr -->
                                                              the same, where the first two cells of a row are keys
    <!-- from docs/records/NAME.json: ms, 1e-6 * bytes by name -->
                                                              the same of the rows of a file, as `sfao bench` leaves it
    <!-- from docs/records/NAME.json: one.name, 100 * another, rows[SGD; mlp].ms -->
                                                              values of a file, all decimals of the text in its order;
                                                              in brackets, what the row that is meant has
    <!-- from docs/reproduction/released.md -->               numbers of a page that is itself made from records
    <!-- printed by: benchmarks/NAME.py -->                   numbers that this program prints, in moments
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
MARKER = re.compile(r"^<!-- (from|printed by:?) ([^\s:]+)(?:: ((?:.|\n)+?))? -->$", re.MULTILINE)
#: A number as results are told: with a point or a comma of thousands, or so many times (20x); not a version, a name or
#: a part of one.
NUMBER = re.compile(r"(?<![\w.,#/-])[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?!(?!x\b)[\w/]|[.,-]\d)")
DECIMAL = re.compile(r"(?<![\w.,/-])[+-]?(?:\d{1,3}(?:,\d{3})+|\d*)\.\d+(?!(?!x\b)[\w/]|[.,]\d)")
#: A command that makes the numbers again, or an example that is run.
COMMAND = re.compile(
    r"\b(sfao (run|compare|demo|tune|sweep|reproduce|report|bench)"
    r"|python \S+\.py|pytest|make \w+)\b"
)


@dataclass(frozen=True)
class Block:
    """A block of a page: its text without markers, the line it begins on, its section, and what its marker says."""

    page: Path
    line: int
    text: str
    #: All text under the same heading.
    section: str
    #: (kind, file, rule) of the marker; None without one.
    marker: tuple[str, str, str] | None = None

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_table(self) -> bool:
        return self.text.lstrip().startswith("|")

    @property
    def tells_results(self) -> bool:
        """Whether a reader takes its numbers for measured: decimals in a table, or several in a text."""
        found = DECIMAL.findall(strip_settings(self.text))
        return len(found) >= (1 if self.is_table else 2)

    @property
    def has_command(self) -> bool:
        return bool(COMMAND.search(self.section))


def read_blocks(page: Path) -> list[Block]:
    """Return the blocks of a page in order; code that is no output, and figures, are left out."""
    found, marker, section = [], None, ""
    sections = _sections(page.read_text())
    for line, text in _split(page.read_text()):
        if text.startswith("#"):
            section = text.splitlines()[0]
        match = MARKER.search(text)
        if match:
            kind, file, rule = match.groups()
            marker = (kind.rstrip(":"), file, " ".join((rule or "").split()))
            text = MARKER.sub("", text).strip("\n")
        if not text.strip() or text.startswith(("#", "```", "![")):
            continue
        found.append(Block(page, line, text, sections.get(section, ""), marker))
        marker = None
    return found


def _split(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line, block); a fenced text is one block."""
    lines, begun, fenced = [], 1, False
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        fenced ^= line.startswith("```")
        if line.strip() or fenced:
            begun = begun if lines else number
            lines.append(line)
        elif lines:
            yield begun, "\n".join(lines)
            lines = []


def _sections(text: str) -> dict[str, str]:
    """Return {heading: all that stands under it}."""
    found, heading = {"": ""}, ""
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line
        found[heading] = f"{found.get(heading, '')}{line}\n"
    return found


def strip_settings(text: str) -> str:
    """Return a text without what is no result in it: code, name=value, addresses of links."""
    return re.sub(r"`[^`]*`|\]\([^)]*\)|\S+=\S+", "", text)


def numbers_in(text: str) -> list[str]:
    """Return the numbers of a text in order, as they are written."""
    return [match for match in NUMBER.findall(text) if any(letter.isdigit() for letter in match)]


def agrees(written: str, value: float) -> bool:
    """Tell whether a number as written is this value, rounded to the digits that are written."""
    digits = len(written.partition(".")[2])
    return abs(float(written.replace(",", "")) - value) <= 0.5 * 10.0**-digits * (1 + 1e-9)
