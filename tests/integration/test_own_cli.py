"""Names of one's own on the command line, as docs/own.md has them: every command there is run as it stands."""

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfao.lab.cli.app import app
from tests.command import run

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "own.md").read_text()


def sfao(*arguments, cwd):
    done = run(*arguments, cwd=cwd)
    return done.returncode, done.stdout, done.stderr


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the module of the page."""
    made = tmp_path_factory.mktemp("own")
    (made / "mine.py").write_text(blocks("python")[0])
    return made


@pytest.mark.parametrize("line", blocks("bash")[0].splitlines())
def test_the_commands_of_the_page(folder, line):
    program, *arguments = shlex.split(line)
    code, out, error = sfao(*arguments, cwd=folder)
    assert program == "sfao"
    assert code == 0, error
    assert "mine:" in out


def test_records_keep_the_names_and_are_found_again_elsewhere(folder):
    sfao("run", "mine:tasks", "--method", "mine:Slower", "--set", "lr=0.05", "--quiet", "--out", "kept", cwd=folder)
    record = json.loads((folder / "kept" / "record.json").read_text())
    assert (record["benchmark"], record["method"]) == ("mine:tasks", "mine:Slower")
    assert record["config"]["options"] == {"factor": 0.5}
    code, out, error = sfao(
        "run", "mine:tasks", "--method", "mine:Slower", "--set", "lr=0.05", "--out", "kept", cwd=folder
    )
    assert "finished before" in out, error
    # A report needs the records alone.
    code, out, error = sfao("report", str(folder / "kept"), "--out", "page", cwd=folder.parent)
    assert code == 0, error


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "mine:tasks", "--method", "mine:Slow"], "`method` 'mine:Slow' cannot be found: module 'mine' has no"),
        (["run", "mine:task"], "`benchmark` 'mine:task' cannot be found: module 'mine' has no 'task'"),
        (["run", "mine:points"], "`benchmark` 'mine:points' must be a list or dict of (train, test) pairs"),
        (["run", "nowhere:tasks"], "`benchmark` 'nowhere:tasks' cannot be imported: ModuleNotFoundError"),
        (
            ["compare", "mine:tasks", "--methods", "sgd,mine:network"],
            "`methods` 'mine:network' must be a class derived",
        ),
        (["run", "mine:tasks", "--set", "model.name=mine:Slower"], "`model.name` 'mine:Slower' must be a module, or"),
        (["run", "mine:tasks", "--set", "model.name=mine:network", "--set", "model.widht=3"], "did you mean 'width'"),
        (["run", "mine:tasks", "--method", "mine:Slower", "--set", "options.factr=1"], "did you mean 'factor'"),
        (["run", "mine:tasks", "--set", "tasks=4"], "`tasks` must be from 1 to the 3 that there are, got 4"),
        (["tune", "mine:tasks", "--method", "mine:Slower"], "`--search` must name settings of mine:Slower"),
    ],
)
def test_what_is_wrong_is_one_line_before_anything_is_written(folder, tmp_path, monkeypatch, arguments, said):
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
