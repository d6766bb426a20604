"""Files never import: names in records and settings of others lead to code only if the user types them."""

import importlib.abc
import json
import sys
from pathlib import Path

import pytest
import yaml

from sfao.lab.names import is_own
from tests.command import load_program
from tests.faults.entry import call
from tests.faults.small_runs import TINY
from tests.records import change_record

ROOT = Path(__file__).parents[3]
FIELDS = ("benchmark", "method", "model.name")
EVIL = "evil_code:Thing"


class Refuse(importlib.abc.MetaPathFinder):
    """Fail at the import of what only the files name."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "evil_code":
            pytest.fail(f"{name} was imported")


@pytest.fixture
def received(tmp_path, monkeypatch):
    """A folder from someone else: a module, and runs that name it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [Refuse(), *sys.meta_path])
    monkeypatch.setenv("SFAO_CACHE", str(tmp_path / "cache"))
    (tmp_path / "evil_code.py").write_text("raise SystemExit('code of a file ran')\n")
    return tmp_path


def name_evil(folder: Path, field: str) -> None:
    """Let the files of a finished run name the module, everywhere that this field is."""
    config = yaml.safe_load((folder / "config.yaml").read_text())
    place, name = (config["model"], "name") if "." in field else (config, field)
    place[name] = EVIL
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    change_record(folder, config=config, **({} if "." in field else {field: EVIL}))


def make_run(folder: Path, field: str) -> Path:
    settings = [f"--set={name}={value}" for name, value in TINY.items()]
    assert call("run", "split-mnist-5k", "--method", "sgd", "--out", folder, "--quiet", *settings).code == 0
    name_evil(folder, field)
    return folder


def programs(folder: Path):
    out = folder.parents[2]
    yield "report", ["report", folder, "--out", "page"]
    yield "reproduce", ["reproduce", "table1", "--dry-run", "--seeds", "1", "--out", out, "--data-root", out / "data"]
    yield "reproduce figure", ["reproduce", "figure1", "--dry-run", "--out", out, "--data-root", out / "data"]
    yield "resume", ["run", "split-mnist-5k", "--method", "sgd", "--out", folder, "--resume"]
    yield "settings", ["run", "split-mnist-5k", "--config", folder / "config.yaml", "--out", "new"]
    yield "compare", ["compare", "split-mnist-5k", "--methods", "sgd", "--seeds", "1", "--out", folder.parent]
    yield "tune", ["tune", "split-mnist-5k", "--method", "sfao", "--out", folder.parent, "--trials", "1"]


@pytest.mark.parametrize("field", FIELDS)
def test_no_command_imports_what_a_file_names(received, field):
    folder = make_run(received / "runs" / "reproduce" / "paper" / "split-mnist" / "sgd-0", field)
    assert json.loads((folder / "record.json").read_text())["config"]
    for name, arguments in programs(folder):
        ended = call(*arguments)
        ended.check()
        assert ended.code in ((0, 2) if name == "report" else (2,)), (name, ended)
    assert not (received / "new").exists()


@pytest.mark.parametrize("field", FIELDS)
def test_no_program_of_the_docs_imports_what_a_file_names(received, monkeypatch, field):
    folder = make_run(received / "runs" / "released" / "split-mnist" / "sgd-0", field)
    program = ROOT / "docs" / "keep_records.py"
    target = received / "records" / "released" / "split-mnist.jsonl"
    monkeypatch.setattr(sys, "argv", [str(program), str(received / "runs"), str(target)])
    load_program(program).main()
    maker = load_program(ROOT / "docs" / "make_pages.py")
    archive = maker.read_presets(received / "records")["released"]
    assert [json.loads((folder / "record.json").read_text())["config"]] == [record.config for record in archive]
    assert "### Not run" in "".join(maker.write_tables("released", archive))  # it is in no table


def test_a_name_of_a_file_is_used_once_the_user_types_it(received):
    (received / "typed_code.py").write_text(
        "from sfao.lab.methods.sgd import SGD\n\n\nclass Thing(SGD):\n    name = 'typed'\n"
    )
    (received / "settings.yaml").write_text("method: typed_code:Thing\nepochs: 1\ntasks: 2\nfraction: 0.05\n")
    command = ["run", "split-mnist-5k", "--config", "settings.yaml", "--out", "out", "--quiet"]
    ended = call(*command)
    assert ended.code == 2
    assert "name it on the command line too" in ended.error
    assert "typed_code" not in sys.modules
    assert is_own("typed_code:Thing")
    assert call(*command, "--method", "typed_code:Thing").code == 0
