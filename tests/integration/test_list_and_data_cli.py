import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from sfao.lab.cli.app import app
from sfao.lab.methods import METHODS
from sfao.lab.models import MODELS
from sfao.lab.streams.suite import BENCHMARKS


@pytest.fixture
def sfao(tmp_path, monkeypatch):
    monkeypatch.setenv("SFAO_DATA", str(tmp_path / "data"))
    return lambda *arguments: CliRunner().invoke(app, arguments)


def test_list_names_everything_there_is(sfao):
    known = json.loads(sfao("list", "--json").stdout)
    assert list(known["benchmarks"]) == list(BENCHMARKS)
    assert list(known["methods"]) == list(METHODS)
    assert list(known["models"]) == list(MODELS)
    assert known["models"]["mlp"] == {"sizes": {"hidden": 256}}
    assert known["benchmarks"]["split-mnist"]["tasks"] == 5
    assert all(method["about"].endswith(".") for method in known["methods"].values())
    shown = sfao("list").stdout
    for name in (*BENCHMARKS, *METHODS, *MODELS):
        assert name in shown


def test_list_settings_names_type_default_and_meaning_of_each(sfao):
    parts = json.loads(sfao("list", "settings", "--json").stdout)
    rows = {row["name"]: row for row in parts["run"]}
    assert (rows["epochs"]["type"], rows["epochs"]["default"]) == ("integer >= 1", "2")
    assert [row["name"] for part in parts.values() for row in part if not row["meaning"]] == []
    shown = sfao("list", "settings").stdout
    assert all(row["name"] in shown for part in parts.values() for row in part)
    assert "`kind` must be one of benchmarks, methods, models, settings" in sfao("list", "setings").stderr


def test_data_list_says_what_is_here_and_how_to_get_the_rest(sfao):
    entries = {entry["name"]: entry for entry in json.loads(sfao("data", "list", "--json").stdout)}
    assert entries["mnist-5k"]["where"].endswith(".gz")
    assert entries["cifar10"]["where"] is None
    assert "not here: sfao data get cifar10" in sfao("data", "list").stdout


def test_data_list_needs_no_torch():
    code = "import sys; sys.argv = ['sfao', 'data', 'list']\nfrom sfao.lab.cli.main import main\n"
    code += "try: main()\nexcept SystemExit: pass\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_data_verify_is_0_for_what_is_published_and_1_for_what_is_missing(sfao):
    here = sfao("data", "verify")
    assert here.exit_code == 0
    assert "sha256:c6b100a5a2c0" in here.stdout
    missing = sfao("data", "verify", "mnist", "--json")
    assert missing.exit_code == 1
    assert {row["status"] for row in json.loads(missing.stdout)} == {"missing"}
    assert "4 of 4 files are missing or differ" in missing.stderr
    assert sfao("data", "verify", "mnist", "--quiet").stdout == ""


@pytest.mark.parametrize("command", ["get", "verify"])
def test_a_dataset_that_is_none_is_bad_usage(sfao, command, tmp_path):
    found = sfao("data", command, "cifar11")
    assert found.exit_code == 2
    assert "got 'cifar11' (did you mean 'cifar10'?)" in found.stderr
    assert not (tmp_path / "data").exists()


def test_data_get_tells_why_it_could_not(sfao, monkeypatch):
    from sfao.lab.data import fetch
    from sfao.lab.data.errors import DownloadError

    def unreachable(file, mirrors, folder, progress):
        progress("train-images", 10, None)
        progress("train-images", 20, 100)
        raise DownloadError("no mirror gave train-images")

    monkeypatch.setattr(fetch, "download", unreachable)
    found = sfao("data", "get", "mnist")
    assert found.exit_code == 2
    assert "sfao: no mirror gave train-images" in found.stderr
    assert "Traceback" not in found.stderr
