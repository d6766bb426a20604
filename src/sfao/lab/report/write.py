"""The report of finished runs: report.html, the table in Markdown and LaTeX, and figures for papers."""

from collections.abc import Callable, Sequence
from pathlib import Path

from jinja2.utils import htmlsafe_json_dumps

from sfao import __version__
from sfao.lab.report.comparison import Comparison
from sfao.lab.report.comparison_table import as_latex, as_markdown
from sfao.lab.report.figures import draw_figures
from sfao.lab.report.headline import find_finding
from sfao.lab.report.page.assets import read_asset, render_page
from sfao.lab.report.page.data import describe_group
from sfao.lab.report.runs import RunGroup, find_unfinished_runs, group_runs, load_runs, write_notices
from sfao.lab.report.style import FORMATS
from sfao.lab.run.errors import ReportError
from sfao.lab.run.files import write_atomically

PAGE = "report.html"
FIGURES = "figures"


def write_report(
    folders: Sequence[Path], out: Path, tell: Callable[[str], None] = lambda doing: None, form: str = "pdf"
) -> tuple[list[Path], list[str]]:
    """Write the report into `out`; return the files, and notices about damaged or unfinished runs.

    `form` is the format of the figures: pdf, png or svg. `tell` is called with what is being done. Nothing is written
    before everything is made, no link is followed, and no other file is changed or deleted.
    """
    for folder in (out, out / FIGURES):
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            kind = "link" if folder.is_symlink() else "file"
            raise ReportError(f"`out` must be a folder without links, got the {kind} {folder}")
    tell("reading runs")
    runs = load_runs(folders)
    groups = group_runs(runs)
    notices = write_notices(runs, groups, find_unfinished_runs(folders))
    compared = Comparison([group.group for group in groups])
    # A folder may have a name that is no text, and a page must be one.
    files = {
        PAGE: make_page(groups, notices).encode("utf-8", "replace"),
        "table.md": as_markdown(compared).encode(),
        "table.tex": as_latex(compared).encode(),
    }
    for group in groups:
        tell(f"drawing {group.group.title}")
        files |= {f"{FIGURES}/{drawing.name}.{form}": FORMATS[form](drawing) for drawing in draw_figures(group)}
    tell("writing the report")
    (out / FIGURES).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomically(out / name, content)
    return [out / name for name in files], notices


def make_page(groups: Sequence[RunGroup], notices: Sequence[str] = ()) -> str:
    """Return the page, the same text for the same runs."""
    findings = [find_finding(group.group) for group in groups]
    benchmarks = ", ".join(dict.fromkeys(group.group.title.split(",")[0] for group in groups))
    data = [describe_group(group, finding) for group, finding in zip(groups, findings, strict=True)]
    details = findings[0].details if len(findings) == 1 else [f"{len(groups)} groups that must not be compared."]
    style, script = ("".join(map(read_asset, names)) for names in (("base.css", "report.css"), SCRIPTS))
    return render_page(
        read_asset("report.html.jinja"),
        style,
        script,
        title=benchmarks,
        headline=findings[0].headline if len(findings) == 1 else benchmarks,
        details=details,
        notices=notices,
        data=htmlsafe_json_dumps(data, ensure_ascii=False, separators=(",", ":")),
        version=__version__,
    )


#: report.js calls the others.
SCRIPTS = ("base.js", "statistics.js", "charts.js", "report.js")
