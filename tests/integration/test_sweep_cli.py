"""`sfao sweep` as a user types it."""

import json

import pytest
import yaml
from typer.testing import CliRunner

from sfao.lab.cli.app import app

SMALL = [f"--set={setting}" for setting in ("fraction=0.1", "epochs=1", "tasks=2", "model.hidden=8")]
GRID = ["split-mnist-5k", "--method", "ewc", *SMALL, "--set", "options.strength=10,1e6", "--seeds", "2"]


def sfao(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    out = tmp_path_factory.mktemp("sweep") / "runs"
    done = sfao("sweep", *GRID, "--out", out, "--workers", "1")
    assert done.exit_code == 0, done.stderr
    return out, done


def test_one_row_for_each_combination_the_best_marked_measured_on_validation_images(swept):
    out, done = swept
    lines = done.stdout.splitlines()
    assert lines[1].split() == ["strength", "accuracy", "forgetting", "learned"]
    rows = [line.split() for line in lines[3:5]]
    assert [row[0] for row in rows] == ["10", "1e+06"]
    assert sum(row[-1] == "best" for row in rows) == 1
    assert "Measured on 20 % of the training images, held out of training; test images play no part." in done.stdout
    records = [json.loads(path.read_text()) for path in out.glob("*/record.json")]
    assert {record["config"]["evaluate"] for record in records} == {"validation"}
    assert sorted(path.name for path in out.iterdir() if path.name[0] != ".") == [
        "best.yaml", "comparison.json", "comparison.md",
        "ewc-strength=10.0-0", "ewc-strength=10.0-1", "ewc-strength=1000000.0-0", "ewc-strength=1000000.0-1",
    ]  # fmt: skip
    assert done.stderr.count("done: accuracy") == 4


def test_again_nothing_is_run_and_the_json_names_the_best(swept):
    out, _ = swept
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/*")}
    done = sfao("sweep", *GRID, "--out", out, "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    summary = json.loads(done.stdout)
    assert summary == json.loads((out / "comparison.json").read_text())
    scores = [each["score"] for each in summary["candidates"]]
    assert summary["best"] == summary["candidates"][scores.index(max(scores))]
    assert (summary["evaluate"], summary["validation"]) == ("validation", 0.2)
    assert [run["folder"] for run in summary["runs"]][2] == "ewc-strength=1000000.0-0"
    assert {path: path.stat().st_mtime_ns for path in out.glob("*/*")} == before


def test_the_best_settings_are_ready_for_a_run(swept, tmp_path):
    out, done = swept
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("best: ")]
    runs = [("--config", out / "best.yaml"), line.removeprefix("best: ").split()]
    for number, arguments in enumerate(runs):
        ran = sfao("run", "split-mnist-5k", "--method", "ewc", *arguments, "--out", tmp_path / str(number))
        assert ran.exit_code == 0, ran.stderr
    first, second = (yaml.safe_load((tmp_path / name / "config.yaml").read_text()) for name in "01")
    assert first == second
    assert (first["evaluate"], first["validation"]) == ("test", 0)


def test_a_combination_that_diverges_is_told_and_does_not_win(tmp_path):
    arguments = ["--method", "sgd", *SMALL, "--set", "lr=1e30,0.01", "--seeds", "1"]
    done = sfao("sweep", "split-mnist-5k", *arguments, "--out", tmp_path / "runs")
    assert done.exit_code == 1
    assert "1 of 2 runs did not end well; sgd seed 0 diverged" in done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[3:5]]
    assert rows[0][:4] == ["1e+30", "seed", "0", "diverged:"]
    assert rows[1][-1] == "best"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "options.strength=10"], "`--set` must list values of at least one setting"),
        (["--set", "options.strenght=10,20"], "(did you mean 'strength'?)"),
        (["--set", "options.strength=10,-1"], "got -1"),
        (["--set", "tasks=2,5"], "`tasks` must be the same for all"),
        (["--set", "options.strength=1,2", "--set", "evaluate=test"], "never chosen on test data, got 'test'"),
        (["--set", "options.strength=1,2", "--validation", "0"], "`validation` must be above 0, got 0"),
        (["--set", "options.strength=1,2", "--validation", "0.001"], "`validation` must hold out some"),
        (["--set", "options.strength=1,2", "--seeds", "no"], "`seeds` must be how many"),
    ],
)
def test_bad_input_is_told_in_a_line_and_writes_nothing(arguments, message, tmp_path):
    done = sfao("sweep", "split-mnist-5k", "--method", "ewc", *arguments, "--out", tmp_path / "runs")
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
