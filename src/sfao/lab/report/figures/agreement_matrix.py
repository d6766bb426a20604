"""The agreement with a paper as matrices: a table per row, a method per column, how many numbers agree in a cell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from sfao.lab.report.figures.drawing import Drawing
from sfao.lab.report.figures.style import MUTED, ON_DARK, ON_LIGHT, RAMP, SMALL, STYLE, panels

#: Inches: the height of a row, and what stands above and below a panel's rows.
ROW, AROUND = 0.19, 0.5
#: The share of agreement from which on a cell is so dark that its text is light.
DARK = 0.55
COLOURS = LinearSegmentedColormap.from_list("agreement", RAMP)
#: Stand in cells without a share: filled by runs that have no spread, and by none.
UNJUDGED, NOT_RUN = "?", "-"


@dataclass(frozen=True)
class Count:
    """A cell: how many numbers agree of those that can be judged, and of how many there are runs at all."""

    agree: int
    judged: int
    filled: int
    #: Ends the text of the cell, such as a mark that the caption explains.
    mark: str = ""

    @property
    def text(self) -> str:
        if self.judged:
            return f"{self.agree}/{self.judged}{self.mark}"
        return (UNJUDGED if self.filled else NOT_RUN) + self.mark * bool(self.filled)


#: {row: {column: cell}}; a cell that the paper does not have is left out.
Matrix = Mapping[str, Mapping[str, Count]]


@rc_context(STYLE)
def agreement_matrix(
    matrices: Mapping[str, Matrix], columns: Sequence[str], *, name: str, title: str, caption: str
) -> Drawing:
    """Draw one panel per matrix, all with the same rows in the same places; light is none, dark all."""
    rows = list(dict.fromkeys(row for matrix in matrices.values() for row in matrix))
    figure, axes = panels(len(matrices), columns=2, height=ROW * len(rows) + AROUND)
    for ax, (heading, matrix) in zip(axes, matrices.items(), strict=True):
        _draw(ax, matrix, rows, columns)
        ax.set_title(heading)
    axes[0].set_ylim(len(rows), 0)
    axes[0].set_yticks([place + 0.5 for place in range(len(rows))], rows)
    return Drawing(name, title, caption, _describe(matrices), figure)


def _draw(ax: Axes, matrix: Matrix, rows: Sequence[str], columns: Sequence[str]) -> None:
    for row, cells in matrix.items():
        for column, count in cells.items():
            _draw_cell(ax, columns.index(column), rows.index(row), count)
    ax.set_xlim(0, len(columns))
    ax.set_xticks([place + 0.5 for place in range(len(columns))], columns)
    ax.tick_params(length=0, labelbottom=True)
    ax.spines[:].set_visible(False)


def _draw_cell(ax: Axes, across: int, down: int, count: Count) -> None:
    colour = MUTED
    if count.judged:
        share = count.agree / count.judged
        colour = ON_DARK if share > DARK else ON_LIGHT
        box = Rectangle((across + 0.03, down + 0.05), 0.94, 0.9, facecolor=COLOURS(share), edgecolor="none")
        ax.add_patch(box)
    ax.text(across + 0.5, down + 0.52, count.text, ha="center", va="center", color=colour, size=SMALL)


def _describe(matrices: Mapping[str, Matrix]) -> str:
    return " ".join(f"{heading}: {_describe_matrix(matrix)}." for heading, matrix in matrices.items())


def _describe_matrix(matrix: Matrix) -> str:
    """1 Split MNIST: SGD 3 of 5, EWC not judged; 2 Permuted MNIST: ..."""
    return "; ".join(
        f"{row}: {', '.join(f'{column} {_say(count)}' for column, count in cells.items())}"
        for row, cells in matrix.items()
    )


def _say(count: Count) -> str:
    if count.judged:
        return f"{count.agree} of {count.judged}"
    return "without a spread" if count.filled else "not run"
