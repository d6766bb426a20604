"""The paper's figures, drawn from runs: those of a report, under the paper's numbers.

Figure 1 of the paper is the forgetting of every method on Split MNIST, figure 2 the geometry of SFAO's update.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from sfao.lab.report.figures import forgetting_curves, update_geometry
from sfao.lab.report.runs import LoadedRun, RunGroup, group_runs, load_runs
from sfao.lab.report.style import Drawing, as_pdf, as_picture
from sfao.lab.run.errors import FolderError
from sfao.lab.run.files import write_atomically, write_text

DRAW: dict[str, Callable[[RunGroup], Drawing | None]] = {"figure1": forgetting_curves, "figure2": update_geometry}


def write_figure(name: str, folders: Sequence[Path], file: Path) -> list[Path]:
    """Draw a figure from finished runs into `file` with the endings .svg, .pdf and .md (its caption).

    Nothing is written when the runs have nothing to show, such as no projected step.
    """
    drawing = draw_figure(name, load_runs(folders))
    if drawing is None:
        return []
    picture, paper, text = (file.with_name(f"{file.name}.{ending}") for ending in ("svg", "pdf", "md"))
    write_text(picture, as_picture(drawing))
    write_atomically(paper, as_pdf(drawing))
    write_text(text, f"![{drawing.alt}]({picture.name})\n\n{drawing.caption}\n")
    return [picture, paper, text]


def draw_figure(name: str, runs: Sequence[LoadedRun]) -> Drawing | None:
    """Return a figure whose caption names its runs; raise a FolderError when they must not be in one.

    None when they have nothing to show.
    """
    group, *others = group_runs(runs)
    if others:
        titles = "; ".join(other.group.title for other in (group, *others))
        raise FolderError(f"{name} must be of runs that may be compared, but these are of {titles}")
    drawing = DRAW[name](group)
    if drawing is None:
        return None
    caption = f"{group.group.title}; {_seeds(group)}. {drawing.caption} {group.group.caveat}".strip()
    return replace(drawing, name=name, caption=caption)


def _seeds(group: RunGroup) -> str:
    counts = {row.done for row in group.group.rows}
    if len(counts) == 1:
        return f"n = {counts.pop()}"
    return ", ".join(f"{row.method} n = {row.done}" for row in group.group.rows)
