"""A method that is only in its own file and in the dict METHODS: it runs, is listed, compared and reported."""

import json
from typing import Any

import pytest
import torch
from pydantic import Field
from typer.testing import CliRunner

from sfao.lab.cli.app import app
from sfao.lab.methods import METHODS, Method, MethodOptions
from sfao.lab.run.presets import preset_names
from sfao.lab.streams.stream import Task

SMALL = [f"--set={setting}" for setting in ("fraction=0.1", "epochs=1", "tasks=2", "model.hidden=8")]


class SlowOptions(MethodOptions):
    factor: float = Field(0.5, gt=0, description="The factor on the learning rate after every task.")


class Slow(Method):
    """Plain descent whose learning rate shrinks from task to task."""

    name = "slow"
    Options = SlowOptions
    options: SlowOptions

    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        super().end_task(number, task, generator)
        for group in self.optimizer.param_groups:
            group["lr"] *= self.options.factor

    def concerns(self) -> list[str]:
        return [f"{self.name}: the factor was 1"] if self.options.factor == 1 else []


@pytest.fixture
def sfao(tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, Slow.name, Slow)
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str) -> Any:
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout) if "--json" in arguments else done.stdout

    return invoke


def weights(record: dict[str, Any]) -> str:
    return record["weights_sha256"]


@pytest.mark.parametrize("preset", preset_names())
def test_it_runs_under_every_preset(sfao, preset):
    record = sfao("run", "split-mnist-5k", "--method", "slow", "--out", "run", "--preset", preset, "--json", *SMALL)
    assert record["status"] == "done"
    assert record["config"]["options"] == {"factor": 0.5}


def test_its_options_act_and_its_concerns_are_told(sfao):
    def run(out: str, *more: str) -> dict[str, Any]:
        return sfao("run", "split-mnist-5k", "--out", out, "--json", *SMALL, *more)

    plain = run("sgd", "--method", "sgd")
    same = run("same", "--method", "slow", "--set", "options.factor=1")
    slower = run("slower", "--method", "slow")
    assert weights(same) == weights(plain) != weights(slower)
    assert same["warnings"] == ["slow: the factor was 1"]


def test_it_is_listed_and_reported(sfao, tmp_path):
    known = sfao("list", "--json")["methods"]["slow"]
    assert known["options"] == {"factor": 0.5}
    assert known["about"].endswith(".")
    for method in ("sgd", "slow", "joint"):
        sfao("run", "split-mnist-5k", "--method", method, "--out", f"runs/{method}", *SMALL)
    sfao("report", "runs")
    (table,) = (tmp_path / "runs" / "report").glob("*.md")
    rows = [line.split("|")[1].strip() for line in table.read_text().splitlines() if line.startswith("|")][2:]
    assert [row.split()[0] for row in rows] == ["sgd", "slow", "*joint*"]
    assert "slow" in (tmp_path / "runs" / "report" / "report.html").read_text()
