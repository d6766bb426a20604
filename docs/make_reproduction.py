"""docs/reproduction.md and its figures from the records in docs/records.

python docs/make_reproduction.py                            write the page, and the figures into a folder beside it
python docs/make_reproduction.py --collect runs/reproduce   take the finished runs of a folder into the records first
"""

import argparse
import sys
from pathlib import Path

from sfao.experiment.errors import ConfigError, FolderError
from sfao.experiment.files import write_text
from sfao.reproduction.archive import collect
from sfao.reproduction.page import FIGURES, make_page

DOCS = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collect", type=Path, metavar="RUNS", help="a folder that `sfao reproduce` left")
    parser.add_argument("--records", type=Path, default=DOCS / "records")
    parser.add_argument("--page", type=Path, default=DOCS / "reproduction.md")
    arguments = parser.parse_args()
    try:
        for file in collect(arguments.collect, arguments.records) if arguments.collect else []:
            print(file)
        made = make_page(arguments.records)
        for name, picture in made.figures.items():
            file = arguments.page.parent / FIGURES / name
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, picture)
            print(file)
        write_text(arguments.page, made.text)
    except (ConfigError, FolderError) as error:
        sys.exit(f"make_reproduction: {error}")
    print(arguments.page)


if __name__ == "__main__":
    main()
