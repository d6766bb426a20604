"""The numbers of a paper beside those of our runs, row by row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sfao.lab.report.figures.drawing import Drawing
from sfao.lab.report.figures.style import INK, MUTED, SMALL, STYLE, method_colour, panels, shorten

#: Points across: the ring of the paper is still seen about a dot that lies in it.
RING, DOT = 6.5, 3.5
#: Percent that a panel shows at least: a point of difference must not look like a world of it.
NARROWEST = 20.0


@dataclass(frozen=True)
class Pair:
    """A method's number in percent, there and here; either may be missing."""

    #: As the paper calls it, and as we do.
    row: str
    method: str
    paper: float | None
    ours: float | None
    std: float | None = None

    @property
    def ends(self) -> list[float]:
        """The values that have to be in sight."""
        spread = self.std or 0.0
        own = [] if self.ours is None else [self.ours - spread, self.ours + spread]
        return own if self.paper is None else [self.paper, *own]


@rc_context(STYLE)
def paper_and_ours(
    tables: Mapping[str, Sequence[Pair]], *, name: str, title: str, axis: str, caption: str = ""
) -> Drawing:
    """Draw one panel per table, with the difference of every row at its right edge."""
    rows = list(dict.fromkeys(pair.row for pairs in tables.values() for pair in pairs))
    figure, axes = panels(len(tables), columns=3, height=0.8 + 0.17 * len(rows))
    for ax, (heading, pairs) in zip(axes, tables.items(), strict=True):
        _draw(ax, {rows.index(pair.row): pair for pair in pairs})
        ax.set_title(shorten(heading, 38))
    axes[0].set_ylim(len(rows) - 0.4, -0.6)
    axes[0].set_yticks(range(len(rows)), rows)
    keys = [
        Line2D([], [], color=INK, marker="o", markersize=RING, markerfacecolor="none", linestyle="none", label="paper"),
        Line2D([], [], color=INK, marker="o", markersize=DOT, linestyle="-", linewidth=1.4, label="ours, with spread"),
        Line2D([], [], linestyle="none", label="at the right: ours minus the paper's"),
    ]
    figure.legend(handles=keys, loc="outside upper left", ncols=len(keys), frameon=False, fontsize=SMALL)
    figure.supxlabel(axis)
    return Drawing(name, title, caption, _describe(tables, axis), figure)


def _draw(ax: Axes, at: Mapping[int, Pair]) -> None:
    """Draw with one artist per kind of mark: a picture of many tables must stay small."""
    colours = {height: method_colour(pair.method) for height, pair in at.items()}
    theirs = {height: pair.paper for height, pair in at.items() if pair.paper is not None}
    ours = {height: pair.ours for height, pair in at.items() if pair.ours is not None}
    both = [height for height in theirs if height in ours]
    spreads = {height: std for height in ours if (std := at[height].std)}
    ax.hlines(
        both, [theirs[height] for height in both], [ours[height] for height in both],
        colors=[colours[height] for height in both], linewidth=0.7, alpha=0.6, zorder=1,
    )  # fmt: skip
    ax.hlines(
        list(spreads), [ours[height] - std for height, std in spreads.items()],
        [ours[height] + std for height, std in spreads.items()],
        colors=[colours[height] for height in spreads], linewidth=1.6, zorder=2,
    )  # fmt: skip
    for values, size, filled in ((theirs, RING, False), (ours, DOT, True)):
        marks = [colours[height] for height in values]
        ax.scatter(
            list(values.values()), list(values), s=size**2, edgecolors=marks, facecolors=marks if filled else "none",
            linewidths=1.0, zorder=3,
        )  # fmt: skip
    for height in both:
        ax.annotate(
            f"{ours[height] - theirs[height]:+.1f}", (1.0, height), (2, 0), xycoords=("axes fraction", "data"),
            textcoords="offset points", va="center", size=SMALL,
        )  # fmt: skip
    ax.set_xlim(*_limits([end for pair in at.values() for end in pair.ends]))
    ax.locator_params(axis="x", nbins=5, integer=True)
    ax.tick_params(labelbottom=True)
    ax.grid(axis="x", color=MUTED, alpha=0.25, linewidth=0.5)


def _limits(ends: Sequence[float]) -> tuple[float, float]:
    """Return limits around all values, with some room, and no less than the narrowest panel."""
    low, high = min(ends, default=0.0), max(ends, default=100.0)
    half = max(0.56 * (high - low), NARROWEST / 2)
    return (low + high) / 2 - half, (low + high) / 2 + half


def _describe(tables: Mapping[str, Sequence[Pair]], axis: str) -> str:
    lines = [f"{heading}: {', '.join(map(_describe_pair, pairs))}" for heading, pairs in tables.items()]
    return f"Paper and ours, {axis}. {'; '.join(lines)}."


def _describe_pair(pair: Pair) -> str:
    paper, ours = ("none" if value is None else f"{value:.1f}" for value in (pair.paper, pair.ours))
    return f"{pair.row} {paper} and {ours}" + (f" ± {pair.std:.1f}" if pair.std is not None else "")
