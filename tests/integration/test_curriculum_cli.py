"""`sfao curriculum` as a user types it."""

import json

import pytest
from typer.testing import CliRunner

from sfao.lab.cli.app import app

SMALL = [f"--set={text}" for text in ("fraction=0.1", "epochs=1", "model.hidden=8", "batch_size=40")]


def sfao(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_it_proposes_an_order_and_runs_it_beside_the_others(tmp_path):
    out = tmp_path / "out"
    command = ["curriculum", "split-mnist-5k", "--seeds", "2", "--out", out, *SMALL]
    done = sfao(*command)
    assert done.exit_code == 0, done.stderr
    summary = json.loads((out / "curriculum.json").read_text())
    orders = {name: found["order"] for name, found in summary["orders"].items()}
    assert orders["benchmark"] == [0, 1, 2, 3, 4]
    assert orders["reversed"] == orders["proposed"][::-1]
    costs = {name: found["cost"] for name, found in summary["orders"].items()}
    assert costs["proposed"] == min(costs.values())
    for name, order in orders.items():
        for seed in (0, 1):
            record = json.loads((out / name / f"sfao-{seed}" / "record.json").read_text())
            assert record["order"] == order
    assert [result["name"] for result in summary["results"]] == ["benchmark", "proposed", "reversed"]
    assert summary["results"][0]["test"] is None
    assert summary["results"][1]["test"]["n"] == 2
    shown = done.stdout
    assert "difficulty" in shown
    assert ",".join(map(str, orders["proposed"])) in shown
    assert "with and without the proposed order" in (out / "curriculum.md").read_text()

    again = sfao(*command, "--json")
    assert again.exit_code == 0, again.stderr
    assert json.loads(again.stdout) == summary
    refused = sfao(*command, "--set", "lr=0.5")
    assert refused.exit_code == 2
    assert "`lr` is 0.01, here 0.5" in refused.stderr


def test_a_gate_that_lets_nothing_through_leaves_the_order_as_it_is(tmp_path):
    command = ["curriculum", "split-mnist-5k", "--method", "ogd", "--seeds", "1", *SMALL, "--set", "tasks=2"]
    done = sfao(*command, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    assert "Every order costs the same" in done.stdout
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir()) == ["benchmark", "reversed"]
    summary = json.loads((tmp_path / "out" / "curriculum.json").read_text())
    assert summary["results"][1]["accuracy"] == summary["results"][0]["accuracy"]
    assert summary["results"][1]["test"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["split-mnist-5k", "--method", "sgd"], "`method` must be one with a gate, ogd, sfao, got 'sgd'"),
        (["split-mnist-5k", "--set", "order=[1,0]"], "`order` must be left to the command, which tries several"),
        (["split-mnist-5k", "--set", "task_order=random"], "`task_order` must be left to the command"),
        (["split-mnist-5k", "--set", "tasks=1"], "`tasks` must be at least 2"),
        (["split-mnits"], "did you mean"),
        (["split-mnist-5k", "--seeds", "none"], "`seeds` must be how many"),
    ],
)
def test_bad_usage_is_a_line_and_leaves_nothing(tmp_path, arguments, message):
    done = sfao("curriculum", *arguments, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["order", "task_order"])
def test_a_run_in_another_order_names_its_tasks(tmp_path, name):
    out = tmp_path / name
    done = sfao("run", "split-mnist-5k", "--method", "sgd", *SMALL, "--set", f"{name}=[2,0,1,4,3]", "--out", out)
    assert done.exit_code == 0, done.stderr
    assert json.loads((out / "record.json").read_text())["task_names"] == ["4/5", "0/1", "2/3", "8/9", "6/7"]
    assert "4/5" in done.stdout
    wrong = sfao("run", "split-mnist-5k", "--method", "sgd", "--set", f"{name}=[2,0]", "--out", tmp_path / "no")
    assert wrong.exit_code == 2
    assert "`order` must be 'random' or name each task from 0 to 4 once, got [2, 0]" in wrong.stderr


def test_rollbacks_are_printed_and_one_that_cannot_be_is_a_line(tmp_path, monkeypatch):
    from sfao.lab.run import run

    guard = ["guard.kind=measured", "guard.rise=0.01", "guard.every=5", "validation=0.2", "lr=0.5", "tasks=2"]
    guard = [*SMALL, *(f"--set={text}" for text in guard)]
    done = sfao("run", "split-mnist-5k", "--method", "ogd", *guard, "--out", tmp_path / "run")
    assert done.exit_code == 0, done.stderr
    assert "rollback in task 2, from step" in done.stdout
    monkeypatch.setattr(run, "POINT_BYTES", 1000)
    failed = sfao("run", "split-mnist-5k", "--method", "ogd", *guard, "--out", tmp_path / "large")
    assert failed.exit_code == 1
    assert "sfao: `guard` must have a point to go back to" in failed.stderr
    assert len(failed.stderr.splitlines()) == 1
