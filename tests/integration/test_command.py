"""The command itself: its version, its help, what a shell completes, and what it says without the laboratory."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import sfao
from sfao.lab.cli import main
from sfao.lab.cli.app import app
from sfao.lab.run.errors import ConfigError
from sfao.lab.run.ray import RayRunner

COMMAND = [sys.executable, "-c", "from sfao.lab.cli.main import main; main()"]
BARE = "import typer; app = typer.Typer(); app.command()(lambda: None); app()"
HELP_SECONDS, TRIES = 0.3, 4


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    surroundings = {**os.environ, **environment}
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, env=surroundings, check=False)


def complete(typed: str, words: int) -> list[str]:
    """What bash is offered after a line like this."""
    done = run(_SFAO_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=str(words))
    return done.stdout.split()


def test_version():
    done = run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"sfao {sfao.__version__}\n", "")


def test_a_shell_completes_commands_and_options():
    assert complete("sfao re", 1) == ["report", "reproduce"]
    assert complete("sfao data ", 2) == ["list", "get", "verify"]
    assert complete("sfao demo --q", 2) == ["--quick", "--quiet"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell(shell):
    done = run(_SFAO_COMPLETE=f"source_{shell}")
    assert done.returncode == 0
    assert "_SFAO_COMPLETE" in done.stdout


def processor_seconds(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_is_quick():
    """Under 0.3 s on a quiet machine. On a busy one every second is longer, so a bare typer command takes turns."""
    ours, bare = [], []
    for _ in range(TRIES):
        ours.append(processor_seconds([*COMMAND, "--help"]))
        bare.append(processor_seconds([sys.executable, "-c", BARE, "--help"]))
    assert min(ours) < max(HELP_SECONDS, 1.5 * min(bare))


@pytest.mark.skipif(not Path("/proc").exists(), reason="/proc refuses files, of root too")
@pytest.mark.parametrize(
    "command",
    [
        "run split-mnist-5k",
        "compare split-mnist-5k --methods sgd",
        "tune split-mnist-5k",
        "demo",
        "bench",
        "report .",
        "reproduce table1",
    ],
)
@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("/proc/x", "`out` must be a folder that can be written, got /proc/x: No such file or directory"),
        ("/dev/null/x", "`out` must be a folder, got the file /dev/null"),
    ],
)
def test_a_folder_that_cannot_be_written_is_bad_usage(command, out, said):
    done = CliRunner().invoke(app, [*command.split(), "--out", out])
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"sfao: {said}\n")


def test_help_imports_nothing_heavy():
    code = "import sys; from typer.testing import CliRunner; from sfao.lab.cli.app import app\n"
    code += "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
    code += "print({'torch', 'numpy', 'scipy', 'pydantic', 'yaml', 'matplotlib', 'jinja2'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_without_the_laboratory_one_line_says_what_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(main, "LAB", ("sys", "not_installed", "neither_is_this"))
    with pytest.raises(SystemExit) as stopped:
        main.main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err == (
        "sfao: the command needs the extra `lab` (missing: not_installed, neither_is_this): pip install 'sfao[lab]'\n"
    )


LAUNCHING = {
    "compare": ["split-mnist-5k", "--methods", "sgd"],
    "tune": ["split-mnist-5k", "--method", "sgd", "--search", "lr=0.01:0.1"],
    "reproduce": ["table1", "--quick"],
}


@pytest.mark.parametrize("command", LAUNCHING)
def test_options_of_a_cluster_need_one(command, tmp_path, monkeypatch):
    """tests/integrations/test_ray.py has a cluster."""
    monkeypatch.setitem(sys.modules, "ray", None)
    for options, said in (
        (["--cpus", "2"], "`--cpus` is for --launcher ray, got 2.0 with --launcher local"),
        (["--launcher", "slurm"], "`launcher` must be one of local, ray, got 'slurm'"),
        (["--launcher", "ray"], "--launcher ray needs ray, "),
    ):
        done = CliRunner().invoke(app, [command, *LAUNCHING[command], "--out", str(tmp_path / "runs"), *options])
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith(f"sfao: {said}")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"cpus": 0}, "`cpus` must be above 0, and a whole number if it is above 1, got 0"),
        ({"cpus": 1.5}, "`cpus` must be above 0, and a whole number if it is above 1, got 1.5"),
        ({"gpus": float("inf")}, "`gpus` must be at least 0, and a whole number if it is above 1, got inf"),
    ],
)
def test_amounts_that_no_node_can_have_are_refused(options, rule):
    with pytest.raises(ConfigError) as refused:
        RayRunner(**options)
    assert str(refused.value) == rule
