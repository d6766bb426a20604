"""docs/pictures/architecture.svg: which package may import which.

python docs/make_architecture.py             draw the picture
python docs/make_architecture.py --check     change nothing; exit with 1 where the picture is out of date

The tests compare ROOMS with every import under src/sfao.
"""

import argparse
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

PICTURE = Path(__file__).parent / "pictures" / "architecture.svg"


@dataclass(frozen=True)
class Room:
    """A package: what it is for, the packages its arrows point at, and its column and row in the picture."""

    purpose: str
    arrows: tuple[str, ...]
    place: tuple[float, int]


#: A package may import whatever can be reached from it along the arrows, and nothing else. `core` is every module
#: directly under src/sfao that has no room of its own.
ROOMS = {
    "lab.cli": Room(
        "one file per command",
        ("lab.paper", "lab.bench", "lab.tune", "lab.live"),
        (1.5, 0),
    ),
    "lab.paper": Room("the paper's tables, run anew", ("lab.report",), (1, 1)),
    "lab.bench": Room("time and bytes of a step", ("lab.report",), (2, 1)),
    "lab.tune": Room("settings, chosen on validation", ("lab.report",), (0, 1)),
    "lab": Room("comparisons from Python", ("lab.report",), (3, 1)),
    "lab.live": Room("a run, shown while it goes on", ("lab.report",), (4, 1)),
    "lab.report": Room("from records to pages", ("lab.run",), (1.5, 2)),
    "lab.run": Room("runs: configure, train, record", ("lab.methods", "lab.metrics", "lab.loggers"), (1, 3)),
    "lab.methods": Room("one file per method", ("core", "lab.streams", "lab.models"), (1, 4)),
    "lab.metrics": Room("from the accuracy matrix", (), (2, 4)),
    "lab.loggers": Room("CSV, TensorBoard, wandb, MLflow", ("checks", "lab.safe_io"), (3, 4)),
    "sfao": Room("the public names", ("core",), (0, 4)),
    "integrations": Room("in the loops of other libraries", ("sfao",), (0, 3)),
    "core": Room("SFAO, Gate, DriftBound", ("checks",), (0, 6)),
    "lab.streams": Room("data sets cut into tasks", ("lab.data", "lab.names"), (1, 5)),
    "lab.models": Room("mlp, cnn, wide_resnet", ("lab.names",), (2.5, 6)),
    "lab.data": Room("data sets: describe, read, fetch", ("checks", "lab.safe_io"), (1, 6)),
    "lab.names": Room("ours, installed, module:attribute", ("checks",), (2, 7)),
    "lab.safe_io": Room("JSON, YAML and files, with limits", ("lab.console",), (3, 7)),
    "lab.console": Room("a terminal without control characters", (), (3, 8)),
    "checks": Room("arguments; needs no torch", (), (1, 8)),
}

WIDTH, HEIGHT, ACROSS, DOWN, MARGIN = 220, 52, 244, 92, 16


def reachable(room: str) -> set[str]:
    """The packages that a package may import."""
    found: set[str] = set()
    waiting = list(ROOMS[room].arrows)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += ROOMS[name].arrows
    return found


def draw() -> str:
    """The picture as SVG: boxes in rows, every arrow pointing down."""
    right = max(_corner(room)[0] for room in ROOMS.values()) + WIDTH + MARGIN
    bottom = max(_corner(room)[1] for room in ROOMS.values()) + HEIGHT + MARGIN
    lines = [_arrow(room, ROOMS[name]) for room in ROOMS.values() for name in room.arrows]
    boxes = [_box(name, room) for name, room in ROOMS.items()]
    told = "; ".join(f"{name}: {', '.join(room.arrows) or 'nothing'}" for name, room in ROOMS.items())
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right:g} {bottom:g}" role="img" '
            'font-family="system-ui, sans-serif" aria-labelledby="title">',
            f'<title id="title">What each package may import. {escape(told)}.</title>',
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            '<path d="M0 0L8 4L0 8z" fill="#5b6b7b"/></marker></defs>',
            f'<rect width="{right:g}" height="{bottom:g}" rx="8" fill="#ffffff"/>',
            '<g stroke="#5b6b7b" stroke-width="1.5" marker-end="url(#tip)">',
            *lines,
            "</g>",
            '<g text-anchor="middle">',
            *boxes,
            "</g>",
            "</svg>\n",
        ]
    )


def _corner(room: Room) -> tuple[float, float]:
    column, row = room.place
    return MARGIN + column * ACROSS, MARGIN + row * DOWN


def _arrow(start: Room, end: Room) -> str:
    (x1, y1), (x2, y2) = _corner(start), _corner(end)
    # Towards the side it goes to, so that arrows into one box do not end in one point.
    lean = max(-0.3, min(0.3, (x2 - x1) / (4 * ACROSS))) * WIDTH
    ends = (x1 + WIDTH / 2 + lean, y1 + HEIGHT, x2 + WIDTH / 2 - lean, y2 - 1)
    return '<line x1="{:g}" y1="{:g}" x2="{:g}" y2="{:g}"/>'.format(*ends)


def _box(name: str, room: Room) -> str:
    x, y = _corner(room)
    middle = x + WIDTH / 2
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#eef3f8" stroke="#7d93a8"/>'
        f'<text x="{middle:g}" y="{y + 22:g}" font-size="16" font-weight="600" fill="#14202b">{escape(name)}</text>'
        f'<text x="{middle:g}" y="{y + 41:g}" font-size="13" fill="#33475a">{escape(room.purpose)}</text>'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, exit with 1 where it is out of date")
    if not parser.parse_args().check:
        PICTURE.write_text(draw())
    elif PICTURE.read_text() != draw():
        sys.exit("make_architecture: the picture must be of the rooms as they are; `make architecture` draws it")
    print(PICTURE)


if __name__ == "__main__":
    main()
