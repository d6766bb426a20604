"""docs/reliability.md from the records beside it: attacks that were counted, and circumstances that were compared.

python docs/make_reliability.py                               write the page
python docs/make_reliability.py --collect runs/tally.jsonl    take a new count into the record first; several add up

`make soak` leaves runs/tally.jsonl; `SFAO_TALLY=runs/tally.jsonl pytest tests/faults` one of the short forms.
`python benchmarks/determinism.py --out docs/records/determinism.json` compares circumstances anew.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
RECORDS = DOCS / "records"
COUNTS, CIRCUMSTANCES = "reliability.json", "determinism.json"
TEMPLATE = DOCS / "reliability.template"
#: What is added up for each machine.
_SUMS = ("trials", "seconds")
#: Fields of a line of a tally.
FIELDS: dict[str, type | tuple[type, ...]] = {
    "target": str,
    "what": str,
    "trials": int,
    "broke": int,
    "soak": (int, float),
    "seconds": (int, float),
    "where": str,
}


def read_tally(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a tally, or raise a ValueError that names the line and the rule it breaks."""
    try:
        lines = file.read_text().splitlines()
    except OSError as error:
        raise ValueError(f"`collect` must be a tally that can be read, got {file}: {error.strerror}") from None
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            told = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{file}:{number} must be JSON: {error}") from None
        for name, kind in FIELDS.items():
            if not isinstance(told.get(name), kind):
                raise ValueError(f"{file}:{number} must have `{name}`, got {told.get(name)!r}")
        found.append(told)
    if not found:
        raise ValueError(f"`collect` must be a tally with at least one attack, got {file} without any")
    return found


def add_up(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one attack for each target and deed: the same one in several tests is added up."""
    attacks: dict[tuple[str, str], dict[str, Any]] = {}
    for line in lines:
        found = attacks.setdefault(
            (line["target"], line["what"]),
            {"target": line["target"], "what": line["what"], "trials": 0, "broke": 0, "seconds": 0.0},
        )
        for name in ("trials", "broke", "seconds"):
            found[name] = round(found[name] + line[name], 3)
    return [attacks[key] for key in sorted(attacks)]


def collect(files: Sequence[Path]) -> dict[str, Any]:
    """Return the record of tallies: their attacks, when and where they were made."""
    lines = [line for file in files for line in read_tally(file)]
    if len({line["soak"] for line in lines}) > 1:
        raise ValueError(f"`collect` must be of one share of a soak, or of none, got several in {_join(files)}")
    return {
        "date": datetime.fromtimestamp(max(file.stat().st_mtime for file in files), UTC).date().isoformat(),
        "soak": lines[0]["soak"],
        "sfao": version("sfao"),
        "where": {
            place: {name: round(sum(line[name] for line in lines if line["where"] == place)) for name in _SUMS}
            for place in sorted({line["where"] for line in lines})
        },
        "attacks": add_up(lines),
    }


def _join(files: Sequence[Path]) -> str:
    return ", ".join(map(str, files))


def make_page(records: Path) -> str:
    """Return the page that these records give."""
    counts = json.loads((records / COUNTS).read_text())
    compared = json.loads((records / CIRCUMSTANCES).read_text())
    parts = {
        "attacks": describe_attacks(counts),
        "determinism": "\n\n".join(
            [*(describe_device(told) for told in compared.values()), *name_unmeasured(compared)]
        ),
    }
    page = TEMPLATE.read_text()
    for name, text in parts.items():
        page = page.replace(f"<<{name}>>", text)
    return page


def describe_attacks(counts: dict[str, Any]) -> str:
    """Return how many attacks were made, where, and the table of them."""
    attacks = counts["attacks"]
    trials, broke = (sum(attack[name] for attack in attacks) for name in ("trials", "broke"))
    share = "" if counts["soak"] == 1 else f" SHARE={counts['soak']:g}"
    made = f"`make soak{share}`" if counts["soak"] else "the short forms, in `make test`"
    places = [f"{told['trials']:,} in {told['seconds']:,} s on {place}" for place, told in counts["where"].items()]
    head = (
        f"{len(attacks)} attacks, {trials:,} trials, {broke:,} broke: {made}, on {counts['date']}, "
        f"sfao {counts['sfao']}; {', and '.join(places)} (seconds are added up over the processes)."
    )
    rows = [(each["target"], each["what"], f"{each['trials']:,}", f"{each['broke']:,}") for each in attacks]
    return f"{head}\n\n{make_table(('attacked', 'what is done', 'trials', 'broke'), '--::', rows)}"


def name_unmeasured(compared: dict[str, Any]) -> list[str]:
    """Return what to say of a GPU while nothing was compared on one."""
    measured = any(device.startswith("cuda") for device in compared)
    return [] if measured else ["On a GPU nothing was compared yet: the same command with `--device cuda` does."]


def describe_device(told: dict[str, Any]) -> str:
    """Return what was compared on a device, and the table of it."""
    settings = told["settings"]
    pairs = ", ".join(f"{benchmark} with the {model}" for benchmark, model in told["benchmarks"])
    methods = ", ".join(told["methods"])
    head = (
        f"On {told['device']}, torch {told['torch']}: {methods}, each on {pairs} "
        f"({settings['tasks']} tasks, {settings['fraction']:.0%} of the images, one epoch)."
    )
    rows = [
        (case["what"], f"{case['same']} of {case['runs']}", f"{case['accuracy']:.3f}", _name_errors(case["errors"]))
        for case in told["cases"]
    ]
    if not any(row[3] for row in rows):
        return f"{head}\n\n{make_table(('circumstance', 'same bits', 'accuracies within'), '-::', rows)}"
    return f"{head}\n\n{make_table(('circumstance', 'same bits', 'accuracies within', 'not run'), '-::-', rows)}"


def _name_errors(errors: dict[str, str]) -> str:
    return "; ".join(f"{name}: {error}" for name, error in errors.items())


def make_table(headings: tuple[str, ...], sides: str, rows: list[tuple[str, ...]]) -> str:
    """Return a table in Markdown; `sides` has `:` for a column of numbers."""
    lines = [headings, tuple("---:" if side == ":" else "---" for side in sides)]
    cells = [[cell.replace("|", "\\|") for cell in row[: len(headings)]] for row in [*lines, *rows]]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collect", type=Path, nargs="+", metavar="TALLY", help="tallies that attacks left")
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--page", type=Path, default=DOCS / "reliability.md")
    arguments = parser.parse_args()
    try:
        if arguments.collect:
            record = collect(arguments.collect)
            (arguments.records / COUNTS).write_text(json.dumps(record, indent=1) + "\n")
        arguments.page.write_text(make_page(arguments.records))
    except (ValueError, OSError) as error:
        sys.exit(f"make_reliability: {error}")
    print(arguments.page)


if __name__ == "__main__":
    main()
