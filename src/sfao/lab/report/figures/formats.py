"""A drawing as SVG to be put into a page, and as PDF for a paper; the same bytes for the same drawing."""

import re
from io import BytesIO
from typing import Any
from xml.etree import ElementTree

import matplotlib

from sfao.lab.console import escape_controls
from sfao.lab.report.figures.drawing import Drawing
from sfao.lab.report.figures.letters import quiet_about_letters
from sfao.lab.report.figures.style import INK, MUTED, make_legible

_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
#: The page says what these are in daylight and in the dark.
_COLOURS = {INK: "currentColor", MUTED: "var(--muted)"}
#: The page's font, not that of the machine that drew.
_LEFT_TO_THE_PAGE = {"font-family", "font-stretch"}
#: What a page would say, for a picture that has none around it: ink on paper, in daylight and in the dark.
_ALONE = (
    "svg{color:#1d2126;background:#fff;font-family:sans-serif}"
    "@media(prefers-color-scheme:dark){svg{color:#e4e2dd;background:#16181b}}"
)


def as_svg(drawing: Drawing) -> str:
    """Return an `<svg>` element that needs nothing outside itself, with text as text and ids of its own.

    Styles are written as attributes, which a page with a strict Content-Security-Policy may hold.
    """
    root = make_tree(drawing)
    title = ElementTree.Element("title", {"id": f"{drawing.name}-title"})
    title.text = make_legible(drawing.alt)
    root.insert(0, title)
    root.attrib = {**make_frame(root.attrib["viewBox"]), "role": "img", "aria-labelledby": f"{drawing.name}-title"}
    return ElementTree.tostring(root, encoding="unicode")


def make_tree(drawing: Drawing) -> ElementTree.Element:
    """Return the picture as matplotlib draws it, with ids of its own, styles as attributes and without namespaces."""
    root = ElementTree.fromstring(_save(drawing, "svg"))
    _drop(root, {f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"})
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{_SVG}}}")
        tag = drawing.tags.get(element.attrib.get("id", ""))
        if tag is not None:
            del element.attrib["id"]
        element.attrib = {
            **_attributes(element.attrib, drawing.name),
            **{name: escape_controls(value) for name, value in (tag or {}).items()},
        }
        if element.text and not element.text.strip():
            element.text = None
        element.tail = None
    return root


def make_frame(box: str) -> dict[str, str]:
    """Return the attributes of an `<svg>` element that shows this box."""
    return {
        "xmlns": _SVG,
        "viewBox": box,
        "width": "100%",
        # What matplotlib leaves out because it is the default is ink.
        "fill": "currentColor",
        "stroke-linejoin": "round",
    }


def as_picture(drawing: Drawing) -> str:
    """Return the same for a file of its own, with colours and font that need no page around it."""
    picture = as_svg(drawing).replace("var(--muted)", MUTED)
    return picture.replace("<title", f"<style>{_ALONE}</style><title", 1)


def as_pdf(drawing: Drawing) -> bytes:
    """Return a PDF in plain black ink."""
    return _save(drawing, "pdf")


def _save(drawing: Drawing, form: str) -> bytes:
    """Return a file without a date, and with ids that depend on the drawing alone."""
    file = BytesIO()
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None, "Title": drawing.title}}
    # Type 42 fonts keep the text of a PDF searchable; some publishers refuse the default, type 3.
    fixed: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": drawing.name, "pdf.fonttype": 42}
    with matplotlib.rc_context(fixed), quiet_about_letters():
        drawing.figure.savefig(file, format=form, metadata=dates[form], transparent=True)
    return file.getvalue()


def _drop(root: ElementTree.Element, tags: set[str]) -> None:
    for parent in list(root.iter()):
        for child in [child for child in parent if child.tag in tags]:
            parent.remove(child)


def _attributes(found: dict[str, str], prefix: str) -> dict[str, str]:
    """Return attributes without `style` and xlink; ids and references to them start with the prefix."""
    made: dict[str, str] = {}
    for name, value in found.items():
        if name == "style":
            made |= _declarations(value)
        elif name == "id":
            made["id"] = f"{prefix}-{value}"
        else:
            made[name.removeprefix(f"{{{_XLINK}}}")] = value
    if "href" in made:
        made["href"] = made["href"].replace("#", f"#{prefix}-", 1)
    return {
        name: _COLOURS.get(value, _round(value.replace("url(#", f"url(#{prefix}-"))) for name, value in made.items()
    }


def _round(value: str) -> str:
    """Round to hundredths of a point: finer than any screen, and a quarter of the size."""
    return re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), value)


def _declarations(style: str) -> dict[str, str]:
    pairs = (declaration.partition(":") for declaration in style.split(";") if declaration.strip())
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip() not in _LEFT_TO_THE_PAGE}
