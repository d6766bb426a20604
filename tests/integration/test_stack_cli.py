"""`--stack` as a user types it: compared, swept, interrupted, resumed, refused."""

import json
import signal
import time

import pytest
from typer.testing import CliRunner

from sfao.cli.app import app
from tests.command import Command

SMALL = ["--set", "epochs=1", "--set", "fraction=0.2", "--set", "model.hidden=8"]


def sfao(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def wait_for(what, seconds=120):
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)


def test_a_comparison_says_which_runs_were_stacked_and_what_that_means(tmp_path):
    done = sfao(
        "compare", "split-mnist-5k", "--methods", "sgd,si", "--seeds", "3", *SMALL, "--stack", "--out", tmp_path
    )
    assert done.exit_code == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "sgd, si: stacked, up to 3 runs at once; time is a run's share of the stack's" in said
    assert "equal those of single runs within seed noise" in said
    rows = json.loads((tmp_path / "comparison.json").read_text())["groups"][0]["rows"]
    assert [row["stacked"] for row in rows] == [3, 3]
    assert "stacked, up to 3 runs" in (tmp_path / "comparison.md").read_text()
    again = sfao("compare", "split-mnist-5k", "--methods", "sgd", "--seeds", "3", *SMALL, "--out", tmp_path)
    assert again.exit_code == 0, "what is finished is not run again"


def test_a_sweep_stacks_numbers_and_seeds_and_ranks_as_without(tmp_path):
    arguments = ["--method", "sgd", *SMALL, "--set", "lr=0.001,0.05", "--set", "momentum=0,0.5", "--seeds", "2"]
    stacked = sfao("sweep", "split-mnist-5k", *arguments, "--stack", "--json", "--out", tmp_path / "a")
    assert stacked.exit_code == 0, stacked.stderr
    alone = sfao("sweep", "split-mnist-5k", *arguments, "--jobs", "1", "--json", "--out", tmp_path / "b")
    ours, theirs = json.loads(stacked.stdout), json.loads(alone.stdout)
    assert ours["best"] == theirs["best"]
    accuracies = [[row["accuracy"]["mean"] for row in found["groups"][0]["rows"]] for found in (ours, theirs)]
    assert accuracies[0] == pytest.approx(accuracies[1], abs=0.01)
    assert {row["stacked"] for row in ours["groups"][0]["rows"]} == {8}


def test_interrupted_it_saves_every_run_and_goes_on_without_the_stack(tmp_path):
    arguments = ["compare", "split-mnist-5k", "--methods", "sgd", "--seeds", "2", "--set", "epochs=300"]
    process = Command(*arguments, "--stack", "--out", tmp_path)
    folders = [tmp_path / "sgd-0", tmp_path / "sgd-1"]
    wait_for(lambda: all((folder / "steps.jsonl").exists() for folder in folders))
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "the state is saved, go on with the same command and --resume" in said
    for folder in folders:
        assert (folder / "checkpoint.pt").exists()
        assert not (folder / "record.json").exists()
        assert not list(folder.glob(".*.part"))
    refused = sfao(*arguments, "--stack", "--out", tmp_path)
    assert "holds an unfinished run; add --resume to go on with it" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--methods", "sgd", "--cpus", "2"], "`--cpus` is for --launcher ray, got 2.0 with --launcher local"),
        (["--methods", "sgd", "--jobs", "2"], "`--stack` runs all together in one process; leave out --jobs, got 2"),
        (["--methods", "sgd", "--log", "csv"], "`--stack` has no loggers, only steps.jsonl in each folder"),
        (["--methods", "sfao", "--set", "guard.kind=predicted"], "`--stack` has no guard"),
        (["--methods", "agem"], "`--stack` needs runs that can share a stack, got none: agem-0: agem has no stacked"),
        (["--methods", "sfao", "--set", "options.memory=directions"], "only memory='subspace' can be stacked"),
        (["--methods", "sgd", "--seeds", "3,"], "sgd-3: no other run here can share a stack with it"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(tmp_path, arguments, said):
    done = sfao("compare", "split-mnist-5k", "--seeds", "2", *arguments, "--stack", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()
