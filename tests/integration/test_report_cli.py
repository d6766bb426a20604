"""`sfao report` as a user types it."""

import json
import shutil
import subprocess
import sys

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
    """But for the list that the command keeps for itself."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if path.name != ".figures.json"}


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
    for name in ("table.md", "table.tex", "report.html"):
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


def test_figures_of_an_earlier_report_go_and_those_of_others_stay(compared, tmp_path):
    out = tmp_path / "report"
    assert invoke(compared, "--out", out).exit_code == 0
    (out / "figures" / "mine.pdf").write_bytes(b"mine")
    (tmp_path / "precious.pdf").write_bytes(b"mine")
    listed = json.loads((out / ".figures.json").read_text())
    (out / ".figures.json").write_text(json.dumps([*listed, "../../precious.pdf", 5, "none.pdf"]))
    result = invoke(compared / "sgd-0", "--out", out, "--json")
    assert result.exit_code == 0, result.stderr
    written = {"report.html", "table.md", "table.tex", "figures/accuracy-matrices.pdf", "figures/forgetting.pdf"}
    assert set(contents(out)) == written | {"figures/mine.pdf"}
    assert (tmp_path / "precious.pdf").exists()
    (out / ".figures.json").write_text("{")
    assert invoke(compared / "sgd-0", "--out", out).exit_code == 0


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
    for said in ("1 run is not finished and left out: sgd-1.", "sfao-0: steps.jsonl is damaged, its digest"):
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
        (["file"], "it is a file"),
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


def test_a_figure_that_cannot_be_made_leaves_no_half_report(compared, tmp_path, monkeypatch):
    from sfao.lab.report import figures

    def full(drawing):
        raise OSError(28, "No space left on device", str(tmp_path / "x.pdf"))

    monkeypatch.setattr(figures, "as_pdf", full)
    result = invoke(compared, "--out", tmp_path / "report")
    assert result.exit_code == 1
    assert "No space left on device" in result.stderr
    assert not (tmp_path / "report").exists()


def test_it_is_offered_and_the_help_is_quick():
    """No figure library is loaded to say what there is."""
    code = (
        "import sys; from typer.testing import CliRunner; from sfao.lab.cli.app import app; "
        "print(CliRunner().invoke(app, ['--help']).stdout); "
        "print([name for name in ('torch', 'matplotlib', 'numpy', 'jinja2') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert " report " in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
