"""Figures of runs: one file per figure, each a pure function that returns matplotlib objects without a screen."""

from sfao.lab.report.figures.accuracy_matrices import accuracy_matrices
from sfao.lab.report.figures.cosine_histogram import cosine_histogram
from sfao.lab.report.figures.cost_accuracy import cost_accuracy
from sfao.lab.report.figures.decisions_over_time import decisions_over_time
from sfao.lab.report.figures.drawing import Drawing
from sfao.lab.report.figures.forgetting_curves import forgetting_curves
from sfao.lab.report.figures.formats import as_pdf, as_picture, as_svg
from sfao.lab.report.figures.letters import note_missing_letters, quiet_about_letters
from sfao.lab.report.figures.update_geometry import update_geometry
from sfao.lab.report.groups import RunGroup

__all__ = ["Drawing", "as_pdf", "as_picture", "as_svg", "draw_figures", "note_missing_letters"]

#: From results to reasons.
FIGURES = (
    cost_accuracy,
    accuracy_matrices,
    forgetting_curves,
    update_geometry,
    decisions_over_time,
    cosine_histogram,
)


def draw_figures(group: RunGroup) -> list[Drawing]:
    """Return the figures that the runs of a group have data for."""
    with quiet_about_letters():
        made = [figure(group) for figure in FIGURES]
    return [drawing for drawing in made if drawing is not None]
