"""Figures of the page: panels, with what they are filtered by, and what they are drawn anew from."""

from dataclasses import dataclass
from typing import Any

from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from sfao.lab.report.figures import Drawing
from sfao.lab.report.figures.pieces import Piece, cut


@dataclass(frozen=True)
class Panel:
    """A panel of a picture: the attributes of its frame, by which it is filtered and tells its values, and itself."""

    attributes: dict[str, str]
    svg: Markup

    @property
    def row(self) -> str:
        return self.attributes.get("data-row", "")


@dataclass(frozen=True)
class Picture:
    anchor: str
    title: str
    caption: str
    alt: str
    axes: str
    shared: Markup
    key: Markup
    panels: list[Panel]
    columns: int
    #: What it is drawn anew from, for chosen seeds, as JSON; empty where it cannot be.
    redraw: Markup

    @property
    def is_over_seeds(self) -> bool:
        """Tell whether it shows several seeds together; a panel of one seed says which."""
        return not any("data-seed" in panel.attributes for panel in self.panels)


def make_picture(drawing: Drawing) -> Picture:
    pieces = cut(drawing)
    return Picture(
        anchor=f"figure-{drawing.name}",
        title=drawing.title,
        caption=drawing.caption,
        alt=drawing.alt,
        axes=drawing.axes,
        shared=Markup(pieces.shared),
        key=Markup(pieces.key),
        panels=[_panel(piece) for piece in pieces.panels],
        columns=pieces.columns,
        redraw=write_json(pieces.redraw) if pieces.redraw else Markup(),
    )


def write_json(value: Any) -> Markup:
    """Return JSON that is safe inside a `<script>` element."""
    return htmlsafe_json_dumps(value, ensure_ascii=False, separators=(",", ":"))


def _panel(piece: Piece) -> Panel:
    seed = "" if piece.seed is None else str(piece.seed)
    marks = "" if piece.marks == "[]" else piece.marks
    names = {"data-row": piece.row, "data-layer": piece.layer, "data-seed": seed, "data-marks": marks}
    return Panel({name: value for name, value in names.items() if value}, Markup(piece.svg))
