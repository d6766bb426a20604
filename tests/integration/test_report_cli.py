"""`sfao report` as a user types it."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from sfao.lab.cli.app import app
from tests.lab.report.real_runs import share_comparison


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    return share_comparison(tmp_path_factory)


def invoke(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def written(compared, tmp_path_factory):
    """(folder of the report, what the command printed)"""
    out = tmp_path_factory.mktemp("report") / "deep" / "er"
    done = invoke(compared, "--out", out)
    assert (done.exit_code, done.stderr) == (0, "")
    return out, done.stdout


def test_it_prints_the_paths_of_what_it_wrote_and_wrote_nothing_else(written):
    out, text = written
    files = contents(out)
    assert sorted(text.splitlines()) == sorted(str(out / name) for name in files)
    split = {"cost-accuracy", "accuracy-matrices", "forgetting", "update-geometry", "decisions", "cosines"}
    assert set(files) == {
        "report.html",
        "table.md",
        "table.tex",
        *(f"figures/{name}-split-mnist-5k-domain.pdf" for name in split),
        *(f"figures/{name}-permuted-mnist-5k-domain.pdf" for name in ("accuracy-matrices", "forgetting")),
    }
    assert all(files.values())


def test_the_tables_hold_the_numbers_of_the_records(compared, written):
    out, _ = written
    accuracies = [
        json.loads((compared / f"sfao-{seed}" / "record.json").read_text())["metrics"]["average_accuracy"]
        for seed in (0, 1)
    ]
    mean = f"{sum(accuracies) / 2:.3f}"
    for name in ("table.md", "table.tex"):
        assert mean in (out / name).read_text(), name
    assert (out / "table.md").read_text().count("\n## ") == 2


def test_again_it_writes_the_same_bytes(compared, written, tmp_path):
    result = invoke(compared, "--out", tmp_path, "--json")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert set(told) == {"written", "notices"}
    assert told["notices"] == []
    assert contents(tmp_path) == contents(written[0])
    assert sorted(told["written"]) == sorted(str(tmp_path / name) for name in contents(tmp_path))


def test_a_received_folder_with_a_link_is_one_line_and_exit_code_2(compared, tmp_path):
    ours = tmp_path / "ours"
    ours.mkdir()
    (ours / "precious.pdf").write_bytes(b"ours")
    received = tmp_path / "received"
    shutil.copytree(compared / "sgd-0", received / "sgd-0")
    (received / "report").mkdir()
    (received / "report" / "figures").symlink_to(ours)
    (received / "report" / ".figures.json").write_text('["precious.pdf"]')
    before = contents(tmp_path)
    result = invoke(received)
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert "must be a folder without links, got the link" in result.stderr
    assert contents(tmp_path) == before


def test_figures_have_the_format_that_is_asked_for(compared, tmp_path):
    result = invoke(compared / "sgd-0", "--out", tmp_path, "--figures", "png")
    assert result.exit_code == 0, result.stderr
    assert {"figures/accuracy-matrices.png", "figures/forgetting.png"} < set(contents(tmp_path))
    assert invoke(compared / "sgd-0", "--figures", "gif").exit_code == 2


def test_where_it_goes_when_nothing_is_said(compared, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("sgd-0", "sgd-1"):
        shutil.copytree(compared / name, tmp_path / "runs" / name)
    assert invoke("runs/sgd-0").exit_code == 0
    assert (tmp_path / "runs" / "sgd-0" / "report" / "report.html").exists()
    assert invoke("runs/sgd-0", "runs/sgd-1").exit_code == 0
    assert (tmp_path / "report" / "report.html").exists()


def test_what_is_unfinished_or_damaged_is_told(compared, tmp_path):
    for name in ("sgd-0", "sgd-1", "sfao-0"):
        shutil.copytree(compared / name, tmp_path / "runs" / name)
    (tmp_path / "runs" / "sgd-1" / "record.json").unlink()
    with open(tmp_path / "runs" / "sfao-0" / "steps.jsonl", "a") as file:
        file.write('{"step"')
    result = invoke(tmp_path / "runs")
    assert result.exit_code == 0, result.stderr
    for said in ("sgd-1: not finished and left out.", "sfao-0: steps.jsonl is damaged"):
        assert said in result.stdout
        assert said in (tmp_path / "runs" / "report" / "report.html").read_text()


def test_bad_input_is_told_in_a_line_or_two_and_writes_nothing(compared, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    shutil.copytree(compared / "sgd-0", tmp_path / "damaged")
    (tmp_path / "damaged" / "record.json").write_text("{")
    before = contents(tmp_path)
    for arguments, message in (
        (["none"], "`none` must be a folder of runs, none there"),
        (["empty"], "`empty` must be or hold finished runs"),
        (["file"], "`file` must be a folder of runs, it is a file"),
        (["damaged"], "damaged/record.json must be the record of a run, but it is damaged"),
        ([compared, "damaged"], "damaged/record.json must be the record of a run, but it is damaged"),
        ([compared, "--out", "file"], "`out` must be a folder, got the file file"),
        ([], "RUN_DIR"),
    ):
        result = invoke(*arguments)
        assert result.exit_code == 2, arguments
        assert message in result.stderr
        assert result.stdout == ""
        assert "Traceback" not in result.stderr
        assert contents(tmp_path) == before
