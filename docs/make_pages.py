"""Write the parts of pages that come from records, and their figures.

python docs/make_pages.py            write docs/reproduction.md, docs/reliability.md and the figures
python docs/make_pages.py --check    change nothing; exit with 1 if a page differs from its records

A generated part stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; the rest of a page is written by hand.
docs/keep_records.py puts new results into docs/records.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.lines import Line2D

from sfao.lab.cli.demo import list_methods
from sfao.lab.paper.archive import Archive, read_lines
from sfao.lab.paper.figures import draw_averages, draw_figure, draw_thresholds
from sfao.lab.paper.render import as_markdown
from sfao.lab.paper.results import FilledTable, fill_table
from sfao.lab.paper.series import PRESETS, find_series, table_series
from sfao.lab.paper.tables import paper_table, table_numbers
from sfao.lab.report.comparison import Group, compare_records
from sfao.lab.report.runs import LoadedRun, check_step
from sfao.lab.report.style import INK, MUTED, SMALL, STYLE, Drawing, as_picture, color_of, panels, shorten
from sfao.lab.run.errors import ConfigError, FolderError
from sfao.lab.run.record import Record, read_record
from sfao.lab.safe_io import MAX_LINE, iter_lines, parse_json

DOCS = Path(__file__).parent
#: The preset with the paper's own protocol. The figures show its runs.
SHOWN = "released"
#: The run for figure 2: its record, then some lines of its steps.jsonl.
STEPS = Path(SHOWN, "steps", "split-mnist-sfao.jsonl")


# -- Reproduction ------------------------------------------------------------------------------------------------------


def read_presets(records: Path) -> dict[str, Archive]:
    """Return the records of each preset; runs of another preset with the same settings fill its gaps."""
    kept = {
        preset: list(chain.from_iterable(map(read_lines, sorted((records / preset).glob("*.jsonl")))))
        for preset in PRESETS
    }
    found = {}
    for preset, own in kept.items():
        others = chain.from_iterable(kept[other] for other in reversed(PRESETS) if other != preset)
        found[preset] = Archive(own).complete_from(others)
    return found


def write_tables(preset: str, archive: Archive) -> Iterator[str]:
    """Yield every table that has records, and a list of the others."""
    missing = []
    for number in table_numbers():
        table = fill_table(number, preset, archive)
        if table.is_empty:
            command = f"sfao reproduce table{number} --preset {preset}"
            missing.append(f"- Table {number}, {paper_table(number).title}: `{command}`")
            continue
        yield write_table(table)
        if preset == SHOWN and has_released_rows(number, archive):
            yield write_table(fill_table(number, preset, archive, as_released=True))
    if missing:
        yield "\n".join(["### Not run", "", *missing, ""])


def write_table(table: FilledTable) -> str:
    return as_markdown(table, "###", brief=table.preset != SHOWN or table.as_released)


def has_released_rows(number: int, archive: Archive) -> bool:
    """Return True if there are runs of rows that follow the paper's own protocol."""
    plain, released = (table_series(number, SHOWN, as_released) for as_released in (False, True))
    return any(archive.find(series) for place, series in released.items() if series != plain[place])


def draw_reproduction(records: Path) -> dict[str, str]:
    """Return {file: SVG} of the figures that the records have data for."""
    archive = read_presets(records)[SHOWN]
    found = [record for series in find_series("figure1", SHOWN) for record in archive.find(series)]
    runs = [LoadedRun(Path(), f"{record.method}-{record.seed}", record, []) for record in found]
    drawings = (
        draw_averages([fill_table(number, SHOWN, archive) for number in table_numbers()]),
        draw_thresholds(SHOWN, archive),
        draw_figure("figure1", runs) if runs else None,
        draw_figure("figure2", [read_steps(records / STEPS)]) if (records / STEPS).exists() else None,
    )
    return {f"figures/{drawing.name}.svg": as_picture(drawing) for drawing in drawings if drawing is not None}


def read_steps(file: Path) -> LoadedRun:
    """Return a run with the steps that were kept of it."""
    first, *others = iter_lines(file, MAX_LINE)
    try:
        record = read_record(first, f"{file}:1")
        steps = [check_step(parse_json(line, finite=False)) for line in others]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise FolderError(f"{file} must be a record and steps of its run, but it is damaged: {error}") from error
    return LoadedRun(file.parent, f"{record.method}-{record.seed}", record, steps)


# -- The demo of the README --------------------------------------------------------------------------------------------


def read_demo(records: Path) -> list[Record]:
    """Return the records of `sfao demo` in the order in which it compares the methods."""
    order = list_methods()
    return sorted(read_lines(records / "demo.jsonl"), key=lambda record: (order.index(record.method), record.seed))


def draw_demo(records: Path) -> dict[str, str]:
    """Return the figure of the README."""
    (group,) = compare_records(read_demo(records)).groups
    return {"pictures/demo.svg": as_picture(draw_learned_and_kept(group))}


@rc_context(STYLE)
def draw_learned_and_kept(group: Group) -> Drawing:
    """Draw what each method learns and what it still knows at the end; those that store data below a rule."""
    rows = sorted((row for row in group.rows if row.accuracy), key=lambda row: (row.is_bound, -row.accuracy.mean))
    names = [shorten(row.method, 40) + " (stores data)" * row.stores_data for row in rows]
    figure, (ax,) = panels(1, columns=1, height=0.9 + 0.2 * len(rows))
    for height, row in enumerate(rows):
        color, learned, kept, std = color_of(row.method), row.learned.mean, row.accuracy.mean, (row.accuracy.std or 0.0)
        ax.plot([learned, kept], [height] * 2, color=color, linewidth=1.6, alpha=0.55)
        ax.plot([kept - std, kept + std], [height] * 2, color=color, linewidth=3.0, solid_capstyle="butt")
        ax.plot(learned, height, "o", markersize=6, markerfacecolor="none", markeredgecolor=color)
        ax.plot(kept, height, "o", markersize=6, color=color)
        place = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        ax.annotate(f"{kept:.3f}", (1.0, height), (4, 0), va="center", size=SMALL, **place)
    ranked = sum(not row.is_bound for row in rows)
    if 0 < ranked < len(rows):
        ax.axhline(ranked - 0.5, color=MUTED, linewidth=0.6, linestyle=(0, (2, 2)))
    ax.set(ylim=(len(rows) - 0.4, -0.6), xlabel="accuracy, mean over all tasks")
    ax.set_yticks(range(len(rows)), names)
    ax.grid(axis="x")
    ring = Line2D([], [], color=INK, marker="o", markersize=6, markerfacecolor="none", linestyle="none",
                  label="on each task just after it was learned")  # fmt: skip
    dot = Line2D([], [], color=INK, marker="o", markersize=6, linewidth=3.0, label="after the last task, with spread")
    figure.legend(handles=[ring, dot], loc="outside upper left", ncols=2)
    pairs = zip(names, rows, strict=True)
    told = "; ".join(f"{name} {row.learned.mean:.3f}, then {row.accuracy.mean:.3f}" for name, row in pairs)
    alt = f"Accuracy when learned and after the last task: {told}."
    return Drawing("learned-and-kept", "What is learned, and what is left at the end", f"{group.title}.", alt, figure)


# -- Reliability -------------------------------------------------------------------------------------------------------


def write_attacks(records: Path) -> str:
    """Return the table of what was attacked, from the counts that `make soak` leaves."""
    counts = json.loads((records / "reliability.json").read_text())
    attacks = counts["attacks"]
    trials, broke = (sum(attack[name] for attack in attacks) for name in ("trials", "broke"))
    rows = [(attack["target"], f"{attack['trials']:,}", f"{attack['broke']:,}") for attack in attacks]
    head = f"{trials:,} trials, {broke:,} broke: sfao {counts['sfao']}, {counts['date']}; {'; '.join(counts['where'])}."
    return f"{head}\n\n{write_grid(('attacked', 'trials', 'broke'), rows)}"


def write_determinism(records: Path) -> str:
    """Return a table per device: the circumstances, and how many runs had the same bits."""
    compared = json.loads((records / "determinism.json").read_text())
    return "\n\n".join(map(_write_device, compared.values()))


def _write_device(device: dict[str, Any]) -> str:
    pairs = ", ".join(f"{benchmark} with the {model}" for benchmark, model in device["benchmarks"])
    head = f"{device['device']}, torch {device['torch']}: {', '.join(device['methods'])} on {pairs}."
    rows = [(case["what"], f"{case['same']} of {case['runs']}") for case in device["cases"]]
    return f"{head}\n\n{write_grid(('circumstance', 'same bits'), rows)}"


def write_grid(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a Markdown table whose first column is text and whose other columns are numbers."""
    rule = ("---", *["---:"] * (len(titles) - 1))
    lines = [titles, rule, *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# -- Pages -------------------------------------------------------------------------------------------------------------


def make_files(docs: Path) -> dict[str, str]:
    """Return {file below docs: its content}."""
    records = docs / "records"
    presets = read_presets(records)
    tables = {f"tables {preset}": "\n".join(write_tables(preset, archive)) for preset, archive in presets.items()}
    counts = {"attacks": write_attacks(records), "determinism": write_determinism(records)}
    return {
        "reproduction.md": fill_page(docs / "reproduction.md", tables),
        "reliability.md": fill_page(docs / "reliability.md", counts),
        **draw_reproduction(records),
        **draw_demo(records),
    }


def fill_page(page: Path, parts: dict[str, str]) -> str:
    """Return a page with these generated parts in their places."""
    text = page.read_text(encoding="utf-8")
    for name, part in parts.items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise ValueError(f"{page} must have {begin} and {end}")
        text = f"{before}{begin}\n\n{part.strip()}\n\n{end}{after}"
    return text


def is_same(file: Path, content: str) -> bool:
    """Return True if a file has this content; pictures may differ in what depends on the machine that drew them."""
    held = file.read_text(encoding="utf-8") if file.exists() else ""
    return held == content if file.suffix != ".svg" else list_words(held) == list_words(content)


def list_words(picture: str) -> list[str]:
    """Return the texts in a picture: its title, its labels and its numbers."""
    return re.findall(r">([^<>\s][^<>]*)<", picture)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if a page is out of date")
    arguments = parser.parse_args()
    try:
        files = make_files(DOCS)
    except (ConfigError, FolderError, ValueError, OSError) as error:
        sys.exit(f"make_pages: {error}")
    changed = [name for name, content in files.items() if not is_same(DOCS / name, content)]
    for name in changed:
        if not arguments.check:
            (DOCS / name).write_text(files[name], encoding="utf-8")
        print(DOCS / name)
    if arguments.check and changed:
        sys.exit("make_pages: these differ from their records; `make pages` writes them")


if __name__ == "__main__":
    main()
