"""The demo's table and figure in the README, from the records beside it.

python docs/make_demo.py                       write docs/pictures/demo.svg, and the table into README.md
python docs/make_demo.py --collect runs/demo   take the runs that `sfao demo` left into the records first
"""

import argparse
import sys
from io import StringIO
from pathlib import Path

from sfao.cli.demo import list_methods
from sfao.experiment.errors import ConfigError, FolderError
from sfao.experiment.files import write_text
from sfao.experiment.record import Record
from sfao.outside_text.screen import Screen
from sfao.reports.comparison import Comparison, compare_records
from sfao.reports.comparison_formats import print_comparison
from sfao.reports.figures import as_picture
from sfao.reports.figures.learnt_and_kept import learnt_and_kept
from sfao.reports.headline import find_findings
from sfao.reproduction.archive import read_lines, read_runs, write_lines

DOCS = Path(__file__).parent
RECORDS, FIGURE, README = DOCS / "records" / "demo.jsonl", DOCS / "pictures" / "demo.svg", DOCS.parent / "README.md"
#: The lines of the README between which the demo's own output stands.
BEGIN, END = "<!-- demo: python docs/make_demo.py -->", "<!-- end of demo -->"
#: Columns of the terminal that the README shows.
WIDTH = 100


def read_demo(file: Path = RECORDS) -> list[Record]:
    """Return the records in the order in which the demo compares their methods."""
    order = list_methods()
    return sorted(read_lines(file), key=lambda record: (order.index(record.method), record.seed))


def print_demo(records: list[Record], compared: Comparison) -> str:
    """Return what the demo prints of these records on a terminal: the finding, and the table."""
    screen = Screen(file=StringIO(), width=WIDTH)
    for found in find_findings(records):
        screen.print(found.headline)
    screen.print()
    print_comparison(compared, screen)
    return "".join(f"    {line}".rstrip() + "\n" for line in screen.file.getvalue().splitlines())


def make_figure(compared: Comparison) -> str:
    """Return the picture of the only group that the demo has."""
    (group,) = compared.groups
    drawing = learnt_and_kept(group)
    if drawing is None:
        raise FolderError(f"{RECORDS} must hold runs that are done, found none")
    return as_picture(drawing)


def replace_demo(text: str, shown: str) -> str:
    """Return the README with this in the place of what the demo printed before."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise FolderError(f"{README} must have the lines {BEGIN} and {END} once each")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{shown}\n{END}{rest.partition(END)[2]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collect", type=Path, metavar="RUNS", help="the folder that `sfao demo` left")
    arguments = parser.parse_args()
    try:
        if arguments.collect:
            write_lines(RECORDS, read_runs(arguments.collect))
        records = read_demo()
        compared = compare_records(records)
        write_text(FIGURE, make_figure(compared))
        write_text(README, replace_demo(README.read_text(), print_demo(records, compared)))
    except (ConfigError, FolderError, OSError) as error:
        sys.exit(f"make_demo: {error}")
    for file in (RECORDS, FIGURE, README):
        print(file)


if __name__ == "__main__":
    main()
