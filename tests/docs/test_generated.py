"""Pages and figures that are written from records are those of the records; new results are kept as they are."""

import json

import pytest

from sfao.lab.cli.demo import BENCHMARK, SEEDS, SETTINGS, list_methods
from sfao.lab.paper.archive import read_lines
from sfao.lab.paper.series import table_series
from sfao.lab.run.config import complete_settings
from sfao.lab.run.jobs import plan
from sfao.lab.run.run_log import digest_steps
from tests.command import load_program, run_program
from tests.docs.recorded_numbers import ROOT
from tests.lab.paper.made_records import record

DOCS = ROOT / "docs"
SERIES = table_series(1, "released")["SFAO", ""]


@pytest.fixture(scope="module")
def maker():
    return load_program(DOCS / "make_pages.py")


@pytest.fixture(scope="module")
def made(maker):
    return maker.make_files(DOCS)


def test_pages_and_figures_are_those_of_the_records(maker, made):
    """Run `make pages` after a change of either."""
    assert [name for name, content in made.items() if not maker.is_same(DOCS / name, content)] == []
    shown = (DOCS / "reproduction.md").read_text()
    figures = sorted(path.name for path in (DOCS / "figures").iterdir())
    assert figures == sorted(name.removeprefix("figures/") for name in made if name.startswith("figures/"))
    assert all(f"(figures/{name})" in shown for name in figures)
    assert "(docs/pictures/demo.svg)" in (ROOT / "README.md").read_text()


def test_the_records_of_the_demo_have_its_settings_of_today(maker):
    planned = [job.config.model_dump() for job in plan(BENCHMARK, list_methods(), SEEDS, DOCS, settings=SETTINGS)]
    assert [complete_settings(one.config) for one in maker.read_demo(DOCS / "records")] == planned


@pytest.fixture
def runs(tmp_path):
    """The folder of one run of `sfao reproduce`, with a projected step."""
    folder = SERIES.folder(tmp_path / "runs", 0)
    folder.mkdir(parents=True)
    gate = {"hidden1": {"cosine": 0.37, "kept": 0.83}}
    step = {"step": 20, "task": 1, "epoch": 0, "loss": 0.5, "decisions": {}, "gate": gate}
    (folder / "steps.jsonl").write_text(json.dumps(step) + "\n")
    record(SERIES, steps_sha256=digest_steps(folder)).save(folder)
    return tmp_path / "runs"


def keep(*arguments):
    done = run_program(DOCS / "keep_records.py", *arguments)
    return done.returncode, done.stdout + done.stderr


def test_runs_and_steps_are_kept(maker, runs, tmp_path):
    code, said = keep(runs, tmp_path / "records")
    steps = tmp_path / "records" / maker.STEPS
    assert (code, said) == (0, f"{tmp_path / 'records' / 'released' / 'split-mnist.jsonl'}\n{steps}\n")
    assert [one.method for one in maker.read_presets(tmp_path / "records")["released"]] == ["sfao"]
    assert maker.read_steps(steps).steps[0]["gate"] == {"hidden1": {"cosine": 0.37, "kept": 0.83}}
    code, said = keep(runs, tmp_path / "one.jsonl")
    assert (code, [one.method for one in read_lines(tmp_path / "one.jsonl")]) == (0, ["sfao"])


def test_a_folder_without_runs_is_refused_in_a_line(tmp_path):
    (tmp_path / "empty").mkdir()
    for target in ("one.jsonl", "records"):
        code, said = keep(tmp_path / "empty", tmp_path / target)
        assert code == 1
        assert said.startswith("keep_records: `RUNS` must")
    assert not (tmp_path / "records").exists()


def test_counts_of_attacks_are_added_up(tmp_path):
    line = {"target": "a file", "what": "one bit flipped", "trials": 3, "broke": 0, "where": "2 cores"}
    lines = [line, {**line, "trials": 4000, "broke": 1}, {**line, "target": "a|b, c", "where": "16 cores"}]
    (tmp_path / "tally.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    assert keep(tmp_path / "tally.jsonl", tmp_path / "reliability.json")[0] == 0
    kept = json.loads((tmp_path / "reliability.json").read_text())
    assert kept["attacks"] == [
        {"target": "a file", "trials": 4003, "broke": 1},
        {"target": "a|b", "trials": 3, "broke": 0},
    ]
    assert kept["where"] == ["16 cores", "2 cores"]
