from pathlib import Path

import pytest

from sfao.lab.report.figures import Drawing, as_svg, draw_figures
from sfao.lab.report.figures.pieces import Pieces, cut
from sfao.lab.report.groups import RunGroup, group_runs
from sfao.lab.report.runs import LoadedRun, load_runs
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
    (group,) = (group for group in group_runs(runs) if group.runs[0].record.benchmark == "split-mnist-5k")
    return group


@pytest.fixture(scope="session")
def drawn(runs: list[LoadedRun]) -> list[Drawing]:
    """All figures of the runs; not to be changed."""
    return [drawing for group in group_runs(runs) for drawing in draw_figures(group)]


@pytest.fixture(scope="session")
def drawn_split(split: RunGroup, drawn: list[Drawing]) -> list[Drawing]:
    return [drawing for drawing in drawn if drawing.name.endswith(f"-{split.slug}")]


@pytest.fixture(scope="session")
def pictures(drawn: list[Drawing]) -> dict[str, str]:
    return {drawing.name: as_svg(drawing) for drawing in drawn}


@pytest.fixture(scope="session")
def pieces(drawn_split: list[Drawing]) -> dict[str, Pieces]:
    """The figures of the split benchmark, cut."""
    return {drawing.name: cut(drawing) for drawing in drawn_split}
