"""The figure of the README, from the records of the demo.

python docs/make_demo.py                       write docs/pictures/demo.svg
python docs/make_demo.py --collect runs/demo   first replace the records by the runs of `sfao demo`
"""

import argparse
import sys
from pathlib import Path

from sfao.lab.cli.demo import list_methods
from sfao.lab.paper.archive import read_lines, read_runs, write_lines
from sfao.lab.report.comparison import Comparison, compare_records
from sfao.lab.report.figures import learned_and_kept
from sfao.lab.report.style import as_picture
from sfao.lab.run.errors import ConfigError, FolderError
from sfao.lab.run.files import write_text
from sfao.lab.run.record import Record

DOCS = Path(__file__).parent
RECORDS, FIGURE = DOCS / "records" / "demo.jsonl", DOCS / "pictures" / "demo.svg"


def read_demo(file: Path = RECORDS) -> list[Record]:
    """Return the records in the order in which the demo compares their methods."""
    order = list_methods()
    return sorted(read_lines(file), key=lambda record: (order.index(record.method), record.seed))


def make_figure(compared: Comparison) -> str:
    """Return the figure of the demo's only group."""
    (group,) = compared.groups
    drawing = learned_and_kept(group)
    if drawing is None:
        raise FolderError(f"{RECORDS} must hold runs that are done, found none")
    return as_picture(drawing)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collect", type=Path, metavar="RUNS", help="the output folder of `sfao demo`")
    arguments = parser.parse_args()
    try:
        if arguments.collect:
            write_lines(RECORDS, read_runs(arguments.collect))
        write_text(FIGURE, make_figure(compare_records(read_demo())))
    except (ConfigError, FolderError, OSError) as error:
        sys.exit(f"make_demo: {error}")
    print(FIGURE)


if __name__ == "__main__":
    main()
