from pathlib import Path

import pytest

from sfao.lab.report.figures import draw_figures
from sfao.lab.report.runs import LoadedRun, RunGroup, group_runs, load_runs
from sfao.lab.report.style import Drawing
from tests.lab.report.real_runs import share_comparison


@pytest.fixture(scope="session")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of nine real runs, of two benchmarks; not to be written to."""
    return share_comparison(tmp_path_factory)


@pytest.fixture(scope="session")
def runs(compared: Path) -> list[LoadedRun]:
    return load_runs([compared])


@pytest.fixture(scope="session")
def split(runs: list[LoadedRun]) -> RunGroup:
    """The group of the split benchmark: ewc, sfao and sgd over two seeds, si over one that did not diverge."""
    (group,) = (group for group in group_runs(runs) if group.group.title.startswith("split-mnist-5k"))
    return group


@pytest.fixture(scope="session")
def drawn(split: RunGroup) -> dict[str, Drawing]:
    """The figures of the split benchmark by name; not to be changed."""
    return {drawing.name.removesuffix(f"-{split.slug}"): drawing for drawing in draw_figures(split)}
