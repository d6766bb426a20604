"""Keep the records of runs that a page tells numbers of, one line a run.

python docs/keep_records.py RUNS docs/records/NAME.jsonl     the finished runs under the folder RUNS become that file

A marker above the table or paragraph then names the file, and the tests hold its numbers against the records:

    <!-- from docs/records/NAME.jsonl: compare -->
    <!-- from docs/records/NAME.jsonl: 100 * metrics.average_accuracy ± by method -->

tests/docs/number_blocks.py has all forms of it.
"""

import argparse
import sys
from pathlib import Path

from sfao.lab.paper.archive import read_runs, write_lines
from sfao.lab.run.errors import FolderError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, metavar="RUNS", help="a folder that `sfao compare` or `sfao run` left")
    parser.add_argument("file", type=Path, metavar="FILE", help="the file of records to write")
    arguments = parser.parse_args()
    try:
        found = read_runs(arguments.runs)
        if not found:
            raise FolderError(f"`RUNS` must be a folder that holds finished runs, got {arguments.runs}")
        write_lines(arguments.file, found)
    except FolderError as error:
        sys.exit(f"keep_records: {error}")
    print(f"{arguments.file}: {len(found)} runs")


if __name__ == "__main__":
    main()
