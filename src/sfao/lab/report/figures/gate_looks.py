"""The decisions of the gate in steps.jsonl, in the shape that figures need."""

from collections.abc import Iterable
from dataclasses import dataclass

from sfao.lab.report.comparison import OURS
from sfao.lab.report.groups import RunGroup
from sfao.lab.report.runs import LoadedRun

#: `kept` is written with four digits: what is this close to 0 or 1 was discarded or accepted.
ROUNDED = 1e-4


@dataclass(frozen=True)
class Look:
    """One step of one layer: the largest sampled cosine, and the share of the gradient's length that was kept."""

    run: LoadedRun
    step: int
    layer: str
    cosine: float
    kept: float

    @property
    def is_projected(self) -> bool:
        return ROUNDED < self.kept < 1 - ROUNDED


def collect_looks(runs: Iterable[LoadedRun]) -> list[Look]:
    """Return the looks at layers that were compared with directions."""
    return [
        Look(run, line["step"], layer, look["cosine"], look["kept"])
        for run in runs
        for line in run.steps
        for layer, look in line["gate"].items()
        if "cosine" in look
    ]


def gated_rows(group: RunGroup) -> dict[str, list[LoadedRun]]:
    """Return the rows whose runs have a gate that decided anything, ours first."""
    gated = {
        row: runs
        for row, runs in group.done.items()
        if any("kept" in look for run in runs for line in run.steps for look in line["gate"].values())
    }
    return dict(sorted(gated.items(), key=lambda item: item[0].split(" ")[0] not in OURS))


def layers_of(runs: Iterable[LoadedRun]) -> list[str]:
    """Return the names of the layers in the order of the model."""
    return list(dict.fromkeys(layer for run in runs for line in run.steps for layer in line["decisions"]))
