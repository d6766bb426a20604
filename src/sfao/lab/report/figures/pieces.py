"""A drawing in pieces for a page: each panel a picture of its own, which a narrow page sets below the last one."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log10
from typing import Any
from xml.etree import ElementTree

from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from sfao.lab.console import escape_controls
from sfao.lab.report.figures.drawing import Drawing, Mark, Panel, name_panel
from sfao.lab.report.figures.formats import as_svg, make_frame, make_tree
from sfao.lab.report.figures.letters import quiet_about_letters
from sfao.lab.report.figures.style import WIDTH, make_legible

#: Points around a panel: a page may write in a wider font than the one measured with.
MARGIN = 3.0
#: Marks of a panel; with more, a page gets slow and a place is smaller than a pointer.
MOST_MARKS = 2500
MOST_COLUMNS = 4
#: The id of a colour bar.
KEY = "key"
#: Pixels for a point of a key, about as many as panels have on a wide page.
KEY_SCALE = 1.75


@dataclass(frozen=True)
class Piece:
    """A panel as an `<svg>` element, and what it is of."""

    svg: str
    row: str = ""
    layer: str = ""
    seed: int | None = None
    #: JSON: [x, y, width, height, text, row, seed] of every mark, in the units of the picture.
    marks: str = "[]"


@dataclass(frozen=True)
class Pieces:
    """The panels of a drawing, with what they share."""

    #: An `<svg>` element that shows nothing and holds what panels refer to; empty where they refer to nothing.
    shared: str
    #: The legend; empty where there is none.
    key: str
    panels: list[Piece]
    #: The number of panels that have room side by side.
    columns: int
    #: What a page draws the panels anew from, for chosen seeds; empty where it cannot.
    redraw: dict[str, Any] = field(default_factory=dict)


@quiet_about_letters()
def cut(drawing: Drawing) -> Pieces:
    """Return the drawing in pieces; one piece where it has no panels."""
    if not drawing.panels:
        return Pieces("", "", [Piece(as_svg(drawing))], 1)
    root = make_tree(drawing)
    definitions = _take_definitions(root)
    groups = {element.attrib["id"]: element for element in root.iter("g") if "id" in element.attrib}
    boxes = _measure(drawing)
    columns = max(1, min(MOST_COLUMNS, round(72 * WIDTH / boxes[0].width)))
    panels = [
        Piece(
            _frame(groups[f"{drawing.name}-{name_panel(number)}"], box, _name(drawing, panel)),
            panel.row,
            panel.layer,
            panel.seed,
            _write_marks(drawing.figure, panel),
        )
        for number, (panel, box) in enumerate(zip(drawing.panels, boxes, strict=True))
    ]
    return Pieces(_hold(definitions), _cut_key(drawing, groups), panels, columns, _describe_redrawing(drawing))


def _take_definitions(root: ElementTree.Element) -> list[ElementTree.Element]:
    """Take the definitions out of the picture: panels share them, and one that is hidden must not hide them."""
    taken = []
    for parent in list(root.iter()):
        for child in parent.findall("defs"):
            parent.remove(child)
            taken += list(child)
    return taken


def _hold(definitions: Sequence[ElementTree.Element]) -> str:
    if not definitions:
        return ""
    holder = ElementTree.Element("svg", {"class": "shared", "width": "0", "height": "0", "aria-hidden": "true"})
    ElementTree.SubElement(holder, "defs").extend(definitions)
    return ElementTree.tostring(holder, encoding="unicode")


def _measure(drawing: Drawing) -> list[Bbox]:
    """Return a box about each panel with its labels, in the units of the picture, all of one size."""
    figure = drawing.figure
    inner = [_in_picture(figure, panel.ax.get_window_extent()) for panel in drawing.panels]
    outer = [_in_picture(figure, _reach(panel)) for panel in drawing.panels]
    pairs = list(zip(inner, outer, strict=True))
    left, top = (max(getattr(i, end) - getattr(o, end) for i, o in pairs) + MARGIN for end in ("x0", "y0"))
    right, bottom = (max(getattr(o, end) - getattr(i, end) for i, o in pairs) + MARGIN for end in ("x1", "y1"))
    return [Bbox.from_extents(box.x0 - left, box.y0 - top, box.x1 + right, box.y1 + bottom) for box in inner]


def _reach(panel: Panel) -> Bbox:
    """Return all that a panel covers, also labels that the layout left no room for, in pixels."""
    beside = [text.get_window_extent() for text in panel.ax.texts if not text.get_in_layout()]
    boxes = [panel.ax.get_tightbbox(), *beside]
    return Bbox.union([box for box in boxes if box is not None])


def _in_picture(figure: Figure, box: Bbox) -> Bbox:
    """Return a box of pixels from below in points from above, the units of a picture."""
    scale, height = 72 / figure.dpi, 72 * figure.get_figheight()
    return Bbox.from_extents(box.x0 * scale, height - box.y1 * scale, box.x1 * scale, height - box.y0 * scale)


def _frame(group: ElementTree.Element, box: Bbox, name: str, **attributes: str) -> str:
    """Return the group in an `<svg>` element that shows the box."""
    frame = make_frame(f"{box.x0:.1f} {box.y0:.1f} {box.width:.1f} {box.height:.1f}")
    root = ElementTree.Element("svg", {**frame, "role": "img", "aria-label": make_legible(name), **attributes})
    root.append(group)
    return ElementTree.tostring(root, encoding="unicode")


def _name(drawing: Drawing, panel: Panel) -> str:
    seed = "" if panel.seed is None else f"seed {panel.seed}"
    return ", ".join(filter(None, (drawing.title, panel.row or panel.ax.get_xlabel(), panel.layer, seed)))


def _cut_key(drawing: Drawing, groups: Mapping[str, ElementTree.Element]) -> str:
    """Return the legend or the colour bar of a drawing, as large as its text should be."""
    figure = drawing.figure
    bars = [ax for ax in figure.axes if ax.get_gid() == KEY]
    if figure.legends:
        name, box = "legend_1", _in_picture(figure, figure.legends[0].get_window_extent())
    elif bars:
        name, box = KEY, _in_picture(figure, bars[0].get_tightbbox() or bars[0].get_window_extent())
    else:
        return ""
    shown = box.padded(MARGIN)
    return _frame(groups[f"{drawing.name}-{name}"], shown, "key", width=f"{KEY_SCALE * shown.width:.0f}")


def _describe_redrawing(drawing: Drawing) -> dict[str, Any]:
    """Return what the drawing says of its redrawing, with the places of the axes of each panel."""
    if not drawing.redraw:
        return {}
    return {
        **drawing.redraw,
        "panels": [{**_locate(drawing.figure, panel), **panel.redraw} for panel in drawing.panels],
    }


def _locate(figure: Figure, panel: Panel) -> dict[str, Any]:
    """Return [slope, shift, is logarithmic] of both axes, in the units of the picture, and the frame that they have."""
    frame = _in_picture(figure, panel.ax.get_window_extent())
    (left, right), (bottom, top) = panel.ax.get_xlim(), panel.ax.get_ylim()
    is_log = panel.ax.get_xscale() == "log"
    if is_log:
        left, right = log10(left), log10(right)
    across, up = (frame.x1 - frame.x0) / (right - left), (frame.y0 - frame.y1) / (top - bottom)
    return {
        "x": [across, frame.x0 - across * left, int(is_log)],
        "y": [up, frame.y1 - up * bottom, 0],
        "frame": [round(float(number), 2) for number in frame.extents],
    }


def _write_marks(figure: Figure, panel: Panel) -> str:
    if len(panel.marks) > MOST_MARKS:
        return "[]"
    return json.dumps([_place(figure, panel, mark) for mark in panel.marks], ensure_ascii=False, separators=(",", ":"))


def _place(figure: Figure, panel: Panel, mark: Mark) -> list[Any]:
    half = (mark.width / 2, mark.height / 2)
    corners = [(mark.x - half[0], mark.y - half[1]), (mark.x + half[0], mark.y + half[1])]
    box = _in_picture(figure, Bbox(panel.ax.transData.transform(corners)))
    numbers = [round((box.x0 + box.x1) / 2, 1), round((box.y0 + box.y1) / 2, 1)]
    sizes = [round(abs(box.width), 1), round(abs(box.height), 1)]
    told = (
        []
        if not mark.row
        else [escape_controls(mark.row)]
        if mark.seed is None
        else [escape_controls(mark.row), mark.seed]
    )
    return [*numbers, *sizes, escape_controls(mark.text), *told]
