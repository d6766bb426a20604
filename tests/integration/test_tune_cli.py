"""`sfao tune` as a user types it: killed, interrupted, gone on with."""

import json
import os
import signal
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from sfao.lab.cli.app import app
from tests.integration.test_compare_cli import children, compare, finish, start, wait_for

SMALL = [f"--set={setting}" for setting in ("fraction=0.5", "epochs=3", "tasks=2")]
STUDY = ["--method", "ewc", *SMALL, "--trials", "3", "--seeds", "1", "--workers", "1"]


def tune(*arguments):
    """Start a study to be killed or interrupted."""
    return start(*STUDY, *arguments, command="tune")


def tune_undisturbed(*arguments):
    return compare(*STUDY, *arguments, command="tune")


def sfao(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def results(out):
    """What must not depend on how often a study was interrupted."""
    trials = json.loads((out / "trials.json").read_text())["trials"]
    records = [json.loads(path.read_text()) for path in sorted(out.glob("trial-*/record.json"))]
    return [(each["settings"], each["score"]) for each in trials], [each["weights_sha256"] for each in records]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """A study that nothing disturbs."""
    out = tmp_path_factory.mktemp("reference") / "study"
    code, text, error = tune_undisturbed("--out", out)
    assert code == 0, error
    return out, text, error


def test_it_ends_in_a_table_the_best_settings_and_the_paths_of_what_it_wrote(reference):
    out, text, error = reference
    lines = text.splitlines()
    assert lines[1].split() == ["trial", "strength", "accuracy", "forgetting", "learned"]
    assert [line.split()[0] for line in lines[3:6]] == ["0", "1", "2"]
    assert sum(line.rstrip().endswith("best") for line in lines) == 1
    assert "Measured on 20 % of the training images, held out of training; test images play no part." in text
    assert lines[-3:] == [str(out / name) for name in ("trials.json", "trials.md", "best.yaml")]
    assert error.splitlines()[0] == (
        "choosing options.strength=10:1000000:log of ewc on split-mnist-5k: 3 trials x 1 seeds, "
        "ranked on 20 % of the training images, never on test images"
    )
    assert [line.split(":")[0] for line in error.splitlines()[1:]] == [f"trial-{number} seed 0" for number in range(3)]


def test_an_ended_study_is_only_shown_and_its_best_file_makes_a_run(reference, tmp_path):
    out, _, _ = reference
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/*")}
    done = sfao("tune", "split-mnist-5k", *STUDY, "--out", out, "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    summary = json.loads(done.stdout)
    assert summary == json.loads((out / "trials.json").read_text())
    assert {path: path.stat().st_mtime_ns for path in out.glob("*/*")} == before
    arguments = ["--config", out / "best.yaml", "--set", "fraction=0.1", "--set", "epochs=1"]
    ran = sfao("run", "split-mnist-5k", "--method", "ewc", *arguments, "--out", tmp_path / "run")
    assert ran.exit_code == 0, ran.stderr
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert config["options"]["strength"] == summary["best"]["settings"]["options.strength"]
    assert (config["evaluate"], config["validation"]) == ("test", 0)


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds the workers in /proc")
def test_killed_then_interrupted_then_gone_on_with_it_is_the_same_study(reference, tmp_path):
    out = tmp_path / "study"
    process = tune("--out", out)
    wait_for((out / "trial-0-0" / "steps.jsonl").exists)
    workers = children(process)
    process.kill()
    process.communicate(timeout=60)
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
    assert not (out / "trials.json").exists()

    process = tune("--out", out)
    wait_for((out / "trial-1-0" / "steps.jsonl").exists)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them at once
    code, text, error = finish(process)
    assert (code, text) == (130, "")
    assert error.splitlines()[-1] == "sfao: interrupted; the state is saved, run the same command again to resume"
    assert "Traceback" not in error

    code, text, error = tune_undisturbed("--out", out, "--quiet")
    assert (code, text, error) == (0, "", "")
    assert results(out) == results(reference[0])


def test_another_study_in_the_same_folder_is_refused_and_so_is_a_link(reference, tmp_path):
    out, _, _ = reference
    (tmp_path / "link").symlink_to(out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for folder, more, message in [
        (out, ["--set", "epochs=2"], "`epochs` is 3 there and 2 here"),
        (tmp_path / "link", [], "`out` must be a folder without links, got the link"),
    ]:
        done = sfao("tune", "split-mnist-5k", *STUDY, *more, "--out", folder, "--quiet")
        assert (done.exit_code, done.stdout) == (2, "")
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
        assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_a_grid_shows_a_row_for_each_combination_and_names_the_best(tmp_path):
    small = [f"--set={setting}" for setting in ("fraction=0.1", "epochs=1", "tasks=2", "model.hidden=8")]
    search = ["--method", "ewc", "--grid", "--search", "options.strength=10,1e6", "--seeds", "2", "--jobs", "1"]
    done = sfao("tune", "split-mnist-5k", *search, *small, "--out", tmp_path / "grid")
    assert done.exit_code == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[3:5]]
    assert [row[1] for row in rows] == ["10", "1e+06"]
    assert sum(row[-1] == "best" for row in rows) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--grid"], "`--grid` needs lists of values, such as --search options.accept_above=a,b, got"),
        (["--grid", "--search", "tasks=2,5"], "`tasks` must be the same in all trials"),
        (["--method", "sgd"], "`--search` must name settings of sgd, such as lr=0.001:0.1:log, got none"),
        (["--method", "sfaoo"], "(did you mean 'sfao'?)"),
        (["--validation", "0"], "`validation` must be above 0, got 0"),
        (["--validation", "0.001"], "`validation` must hold out some"),
        (["--set", "evaluate=test"], "never chosen on test data, got 'test'"),
    ],
)
def test_bad_input_is_told_in_a_line_and_writes_nothing(arguments, message, tmp_path):
    done = sfao("tune", "split-mnist-5k", "--method", "sfao", *arguments, "--out", tmp_path / "study", "--quiet")
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_where_no_trial_ends_well_it_says_so(tmp_path):
    arguments = ["--method", "sgd", "--set", "fraction=0.1", "--search", "lr=1e29:1e30", "--trials", "1"]
    done = sfao("tune", "split-mnist-5k", *arguments, "--seeds", "1", "--out", tmp_path / "study")
    assert done.exit_code == 1
    assert "sfao: no trial of 1 ended well; trial 0: seed 0 diverged: " in done.stderr
    assert not (tmp_path / "study" / "best.yaml").exists()
