"""From runs and drawings to report.html: the template filled in, style and script inside it, a policy around it."""

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from sfao.lab.console import escape_controls
from sfao.lab.report.figures import Drawing
from sfao.lab.report.groups import group_runs
from sfao.lab.report.headline import find_findings
from sfao.lab.report.page.pictures import make_picture
from sfao.lab.report.page.sections import make_opening, make_section
from sfao.lab.report.runs import LoadedRun
from sfao.lab.run.files import write_atomically
from sfao.lab.tables.html import render_html

PAGE = "report.html"
STYLES = ("report.css", "print.css")
#: One concern each, in one script on the page.
SCRIPTS = (
    "theme.js",
    "sorting.js",
    "scrolling.js",
    "contents.js",
    "values.js",
    "statistics.js",
    "summaries.js",
    "drawings.js",
    "cost_drawing.js",
    "redraw.js",
    "download.js",
    "filter.js",  # the last, as the others act on what it says, also on what it says first
)


def write_page(
    runs: Sequence[LoadedRun],
    drawings_by_group: Sequence[Sequence[Drawing]],
    out: Path,
    notices: Sequence[str] = (),
) -> Path:
    """Write report.html into the folder `out`, whole or not at all, and return its path.

    The drawings come in the order of `group_runs(runs)`; the notices open the page.
    """
    path = out / PAGE
    # A folder may have a name that is no text, and a page must be one.
    write_atomically(path, render_page(runs, drawings_by_group, notices).encode("utf-8", "replace"))
    return path


def render_page(
    runs: Sequence[LoadedRun], drawings_by_group: Sequence[Sequence[Drawing]], notices: Sequence[str] = ()
) -> str:
    """Return the page, the same for the same runs to the letter."""
    sections = [
        make_section(group, finding, f"group-{number}", [make_picture(drawing) for drawing in drawings])
        for number, (group, finding, drawings) in enumerate(
            zip(group_runs(runs), find_findings(run.record for run in runs), drawings_by_group, strict=True), start=1
        )
    ]
    style, script = ("".join(map(_asset, names)) for names in (STYLES, SCRIPTS))
    return (
        _environment()
        .get_template("report.html.jinja")
        .render(
            opening=make_opening(runs, sections),
            sections=sections,
            render_html=render_html,
            notices=notices,
            policy=_policy(style, script),
            style=Markup(style),
            script=Markup(script),
        )
    )


def _policy(style: str, script: str) -> str:
    """Return the policy that allows this style, this script and pictures inside the page, and nothing else."""
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def _asset(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _environment() -> Environment:
    return Environment(
        loader=FunctionLoader(_asset),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_make_plain,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _make_plain(value: Any) -> Any:
    """Return text with its control characters shown; what is HTML already stays."""
    return escape_controls(value) if isinstance(value, str) and not isinstance(value, Markup) else value
