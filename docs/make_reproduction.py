"""docs/reproduction.md, the page of each preset and their figures from the records in docs/records.

python docs/make_reproduction.py                            write the pages and the figures
python docs/make_reproduction.py --collect runs/reproduce   take the finished runs of a folder into the records first
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from sfao.lab.paper.archive import collect
from sfao.lab.paper.page import FIGURES, make_pages
from sfao.lab.paper.telemetry_sample import collect_samples
from sfao.lab.run.errors import ConfigError, FolderError
from sfao.lab.run.files import write_text

DOCS = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collect", type=Path, metavar="RUNS", help="a folder that `sfao reproduce` left")
    parser.add_argument("--records", type=Path, default=DOCS / "records", help="the folder of the records")
    parser.add_argument("--docs", type=Path, default=DOCS, help="the folder that the pages are written to")
    arguments = parser.parse_args()
    try:
        if arguments.collect:
            _tell(collect(arguments.collect, arguments.records))
            _tell(collect_samples(arguments.collect, arguments.records))
        made = make_pages(arguments.records)
        pictures = {f"{FIGURES}/{name}": picture for name, picture in made.figures.items()}
        for name, content in {**pictures, **made.texts}.items():
            file = arguments.docs / name
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, content)
            _tell([file])
    except (ConfigError, FolderError) as error:
        sys.exit(f"make_reproduction: {error}")


def _tell(files: Iterable[Path]) -> None:
    for file in files:
        print(file)


if __name__ == "__main__":
    main()
