"""Samples of steps: small, whole, and enough to draw figure 2 from."""

import json

import pytest

from sfao.lab.paper.page_figures import draw_figure2
from sfao.lab.paper.protocol import figure_series
from sfao.lab.paper.telemetry_sample import MOST_LINES, MOST_TEXT, collect_samples, read_samples
from sfao.lab.run.errors import FolderError
from tests.lab.paper.made import record

(SERIES,) = figure_series("figure2", "released")


def leave(runs, seed=0, lines=1000, layers=("model",), **changes):
    folder = SERIES.folder(runs, seed)
    folder.mkdir(parents=True)
    record(SERIES, seed, **changes).save(folder)
    looks = {layer: {"cosine": 0.3, "kept": 0.8} for layer in layers}
    steps = [
        {"step": 20 * number, "task": 0, "epoch": 0, "loss": 0.5, "decisions": {}, "gate": looks}
        for number in range(lines)
    ]
    (folder / "steps.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))


@pytest.mark.parametrize("layers", [("model",), [f"layer {number}" for number in range(60)]])
def test_a_sample_is_bounded_from_first_to_last_step(tmp_path, layers):
    leave(tmp_path / "runs", layers=layers)
    (file,) = collect_samples(tmp_path / "runs", tmp_path / "records")
    assert file == tmp_path / "records" / "released" / "steps" / "split-mnist-sfao.jsonl"
    (run,) = read_samples(tmp_path / "records" / "released")
    assert 2 <= len(run.steps) <= MOST_LINES
    assert len(file.read_text().splitlines()[1]) <= MOST_TEXT
    assert (run.steps[0]["step"], run.steps[-1]["step"]) == (0, 20 * 999)


def test_figure_2_is_drawn_from_a_sample_and_says_so(tmp_path):
    leave(tmp_path / "runs", lines=5)
    collect_samples(tmp_path / "runs", tmp_path)
    drawing = draw_figure2("released", read_samples(tmp_path / "released"))
    assert drawing.name == "figure2-released"
    assert "the update u keeps 0.80" in drawing.alt
    assert drawing.caption.endswith("Of 5 lines of its steps, kept with the records.")
    assert draw_figure2("released", []) is None


def test_the_run_is_that_of_the_smallest_seed_that_ended_well(tmp_path):
    leave(tmp_path / "runs", 0, status="diverged", metrics={}, accuracy_matrix=[])
    for seed in (10, 2):
        leave(tmp_path / "runs", seed)
    collect_samples(tmp_path / "runs", tmp_path)
    assert [run.record.seed for run in read_samples(tmp_path / "released")] == [2]
    assert collect_samples(tmp_path / "nowhere", tmp_path / "other") == []


@pytest.mark.parametrize(
    "change", [lambda text: text.replace("0.8", "0.7"), lambda text: text[:-40], lambda text: "{}"]
)
def test_a_sample_that_was_changed_is_refused(tmp_path, change):
    leave(tmp_path / "runs", lines=3)
    (file,) = collect_samples(tmp_path / "runs", tmp_path)
    file.write_text(change(file.read_text()))
    with pytest.raises(FolderError, match=r"split-mnist-sfao\.jsonl must be a sample of the steps of a run"):
        read_samples(tmp_path / "released")
