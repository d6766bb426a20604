"""Figures of runs: one file a figure, each a pure function to matplotlib objects that know of no screen."""

from sfao.reports.figures.drawing import Drawing
from sfao.reports.figures.formats import as_svg, save_pdf

__all__ = ["Drawing", "as_svg", "save_pdf"]
