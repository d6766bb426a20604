"""The paper's figures from run folders."""

import json

import pytest

from sfao.lab.paper.paper_figures import write_figure
from sfao.lab.paper.protocol import figure_series
from sfao.lab.run.errors import FolderError
from tests.lab.paper.made import record


def leave(out, series, seed=0, gate=None, **changes):
    folder = series.folder(out, seed)
    folder.mkdir(parents=True)
    record(series, seed, **changes).save(folder)
    look = {"step": 20, "task": 1, "epoch": 0, "loss": 0.5, "decisions": {}, "gate": gate or {}}
    (folder / "steps.jsonl").write_text(json.dumps(look) + "\n")
    return folder


def test_figure_1_is_of_every_method_and_figure_2_of_sfao():
    assert [series.method for series in figure_series("figure1", "paper")] == ["sgd", "ewc", "si", "ogd", "sfao"]
    assert [series.method for series in figure_series("figure2", "paper")] == ["sfao"]


def test_a_figure_is_left_as_svg_pdf_and_caption(tmp_path):
    folders = [leave(tmp_path, series) for series in figure_series("figure1", "paper")]
    written = write_figure("figure1", folders, tmp_path / "figure1")
    assert [path.name for path in written] == ["figure1.svg", "figure1.pdf", "figure1.md"]
    picture = written[0].read_text()
    assert picture.startswith("<svg")
    assert "var(" not in picture  # it stands alone
    assert written[1].read_bytes().startswith(b"%PDF")
    assert "split-mnist, domain scenario" in written[2].read_text()


def test_the_geometry_is_of_a_real_projected_step(tmp_path):
    (series,) = figure_series("figure2", "paper")
    gated = leave(tmp_path, series, gate={"hidden1": {"cosine": 0.37, "kept": 0.83}})
    write_figure("figure2", [gated], tmp_path / "figure2")
    assert "keeps 0.83" in (tmp_path / "figure2.md").read_text()


def test_without_a_projected_step_there_is_nothing_to_draw(tmp_path):
    (series,) = figure_series("figure2", "paper")
    assert write_figure("figure2", [leave(tmp_path, series)], tmp_path / "figure2") == []
    assert not (tmp_path / "figure2.svg").exists()


def test_runs_on_different_data_are_refused(tmp_path):
    first, second = figure_series("figure1", "paper")[:2]
    folders = [leave(tmp_path, first), leave(tmp_path, second, data={"train": 600, "complete": False})]
    with pytest.raises(FolderError, match="figure1 must be of runs that may be compared"):
        write_figure("figure1", folders, tmp_path / "figure1")
