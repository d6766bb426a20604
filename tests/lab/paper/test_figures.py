"""The paper's figures from folders of runs, and the plots of the results page."""

import json

import pytest

from sfao.lab.paper.archive import Archive
from sfao.lab.paper.figures import draw_averages, write_figure
from sfao.lab.paper.results import fill_table
from sfao.lab.paper.series import find_series, table_series
from sfao.lab.report.style import as_picture
from sfao.lab.run.errors import FolderError
from sfao.lab.run.run_log import digest_steps
from tests.lab.paper.made_records import record


def leave(out, series, seed=0, gate=None, **changes):
    folder = series.folder(out, seed)
    folder.mkdir(parents=True)
    look = {"step": 20, "task": 1, "epoch": 0, "loss": 0.5, "decisions": {}, "gate": gate or {}}
    (folder / "steps.jsonl").write_text(json.dumps(look) + "\n")
    record(series, seed, steps_sha256=digest_steps(folder), **changes).save(folder)
    return folder


def test_a_figure_is_written_as_svg_pdf_and_caption(tmp_path):
    folders = [leave(tmp_path, series) for series in find_series("figure1", "paper")]
    written = write_figure("figure1", folders, tmp_path / "figure1")
    assert [path.name for path in written] == ["figure1.svg", "figure1.pdf", "figure1.md"]
    assert written[0].read_text().startswith("<svg")
    assert "var(" not in written[0].read_text()  # needs no page around it
    assert written[1].read_bytes().startswith(b"%PDF")
    assert "split-mnist, domain scenario" in written[2].read_text()


def test_figure_2_needs_a_projected_step(tmp_path):
    (series,) = find_series("figure2", "paper")
    gated = leave(tmp_path, series, gate={"hidden1": {"cosine": 0.37, "kept": 0.83}})
    write_figure("figure2", [gated], tmp_path / "figure2")
    assert "keeps 0.83" in (tmp_path / "figure2.md").read_text()
    assert write_figure("figure2", [leave(tmp_path, series, 1)], tmp_path / "none") == []
    assert not (tmp_path / "none.svg").exists()


def test_runs_on_different_data_are_not_drawn_together(tmp_path):
    first, second = find_series("figure1", "paper")[:2]
    folders = [leave(tmp_path, first), leave(tmp_path, second, data={"train": 600, "complete": False})]
    with pytest.raises(FolderError, match="figure1 must be of runs that may be compared"):
        write_figure("figure1", folders, tmp_path / "figure1")


def test_averages_are_drawn_with_their_differences():
    series = table_series(1, "released")["SGD", ""]
    half = {"train": 30000, "complete": False}
    table = fill_table(1, "released", Archive([record(series, seed, 0.7, data=half) for seed in range(2)]))
    picture = as_picture(draw_averages([table, fill_table(2, "released", Archive([]))]))
    assert "Table 1, Split MNIST *" in picture
    assert ">-5.7<" in picture  # 70 beside 75.74
    assert "Table 2" not in picture
    assert draw_averages([fill_table(1, "released", Archive([]))]) is None
