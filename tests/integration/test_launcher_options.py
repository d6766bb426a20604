"""Options of --launcher, as far as they can be refused without a cluster; tests/integrations/test_ray.py has one."""

import sys

import pytest
from typer.testing import CliRunner

from sfao.lab.cli.app import app

COMMANDS = {
    "compare": ["split-mnist-5k", "--methods", "sgd"],
    "tune": ["split-mnist-5k", "--method", "sgd", "--search", "lr=0.01:0.1"],
    "reproduce": ["table1", "--quick"],
}


def refuse(command, tmp_path, *options):
    out = tmp_path / "runs"
    done = CliRunner().invoke(app, [command, *COMMANDS[command], "--out", str(out), *options])
    assert done.exit_code == 2, done.output
    assert not out.exists()
    return done.stderr


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("name", "value"), [("address", "auto"), ("cpus", "2"), ("gpus", "0.5")])
def test_options_of_a_cluster_need_one(command, name, value, tmp_path):
    error = refuse(command, tmp_path, f"--{name}", value)
    assert error.startswith(f"sfao: `--{name}` is for --launcher ray, got ")
    assert error.endswith("with --launcher local\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_launcher_is_refused(command, tmp_path):
    assert "`launcher` must be one of local, ray" in refuse(command, tmp_path, "--launcher", "slurm")


@pytest.mark.parametrize("command", COMMANDS)
def test_without_ray_the_extra_is_named(command, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    error = refuse(command, tmp_path, "--launcher", "ray")
    assert error.startswith("sfao: --launcher ray needs ray, ")
    assert error.endswith("pip install 'sfao[ray]' brings it\n")


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"cpus": 0}, "`cpus` must be above 0, got 0"),
        ({"cpus": float("nan")}, "`cpus` must be above 0, got nan"),
        ({"cpus": 1.5}, "`cpus` must be a whole number if it is above 1, got 1.5"),
        ({"gpus": -1}, "`gpus` must be at least 0, got -1"),
        ({"gpus": float("inf")}, "`gpus` must be at least 0, got inf"),
        ({"gpus": 2.25}, "`gpus` must be a whole number if it is above 1, got 2.25"),
    ],
)
def test_amounts_that_no_node_can_have_are_refused(options, rule):
    from sfao.lab.run.errors import ConfigError
    from sfao.lab.run.ray import RayRunner

    with pytest.raises(ConfigError) as refused:
        RayRunner(**options)
    assert str(refused.value) == rule
