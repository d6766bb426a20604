"""`sfao reproduce` as a reviewer types it."""

import json
import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfao.lab.data.root import VARIABLE
from tests.command import run
from tests.lab.data.publishers import digits, write_mnist


def reproduce(*arguments):
    done = run("reproduce", *arguments)
    return done.returncode, done.stdout, done.stderr


def invoke(*arguments, **how):
    from sfao.lab.cli.app import app

    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)], **how)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A data root with a little MNIST in it, in the publisher's layout, and nothing else."""
    folder = tmp_path_factory.mktemp("data")
    write_mnist(folder / "MNIST" / "raw", digits(train=200, test=50))
    return folder


@pytest.fixture(scope="module")
def first(tmp_path_factory, root):
    """Table 1, and what its SFAO runs left for figure 2."""
    out = tmp_path_factory.mktemp("reproduce") / "runs"
    code, text, error = reproduce("table1", "--preset", "released", "--seeds", "2", "--out", out, "--data-root", root)
    assert code == 0, error
    return out, text, error


def test_it_runs_what_is_missing_and_sets_it_beside_the_paper(first):
    out, text, error = first
    assert error.count("done: accuracy") == 10
    assert "Table 1, Split MNIST; preset released" in text
    assert text.count("part (0.333 %)") == 5
    assert "On a part of the data: 200 training images of mnist (0.333 %)." in text
    assert "The paper's SI: A multi-head run" in text
    assert "Traceback" not in error
    table = json.loads((out / "released" / "table1.json").read_text())
    assert [row["name"] for row in table["rows"]] == ["SGD", "EWC", "SI", "OGD", "SFAO"]
    assert (out / "released" / "table1.md").read_text().startswith("## Table 1, Split MNIST")
    runs = sorted(path.parent.name for path in (out / "released" / "split-mnist").glob("*/record.json"))
    assert runs == ["ewc-0", "ewc-1", "ogd-0", "ogd-1", "sfao-0", "sfao-1", "sgd-0", "sgd-1", "si-0", "si-1"]


def test_the_numbers_are_those_of_the_records(first):
    out, _, _ = first
    records = [
        json.loads((out / "released" / "split-mnist" / f"ogd-{seed}" / "record.json").read_text()) for seed in (0, 1)
    ]
    rows = json.loads((out / "released" / "table1.json").read_text())["rows"]
    cells = next(row for row in rows if row["name"] == "OGD")["cells"]
    for task in range(5):
        expected = 100 * sum(record["accuracy_matrix"][-1][task] for record in records) / 2
        assert cells[task]["ours"]["mean"] == pytest.approx(expected)
    assert cells[5]["ours"]["mean"] == pytest.approx(50 * sum(r["metrics"]["average_accuracy"] for r in records))


def test_a_dry_run_shows_the_time_of_finished_runs_with_the_same_settings(first, root):
    asked = ["--preset", "released", "--seeds", "3", "--out", first[0], "--data-root", root, "--dry-run"]
    seconds = json.loads(invoke("table1", *asked, "--json").stdout)["seconds"]
    assert len(seconds) == 5
    assert re.search(r"sgd-2 +to do +\d+ s", invoke("table1", *asked).stdout)


def test_finished_runs_are_shared_between_tables_and_not_run_again(first, root):
    out, _, _ = first
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/*/*/*")}
    result = invoke("table1", "--preset", "released", "--seeds", "2", "--out", out, "--data-root", root, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout)["tables"][0] == json.loads((out / "released" / "table1.json").read_text())
    assert {path: path.stat().st_mtime_ns for path in out.glob("*/*/*/*")} == before
    dry = invoke(
        "table9",
        "figure1",
        "--preset",
        "released",
        "--seeds",
        "2",
        "--out",
        out,
        "--data-root",
        root,
        "--dry-run",
        "--json",
    )
    states = {
        Path(folder).parent.name + "/" + Path(folder).name: s for folder, s in json.loads(dry.stdout)["runs"].items()
    }
    assert states["split-mnist/ogd-0"] == states["split-mnist/sgd-1"] == "done"
    assert states["permuted-mnist/ogd-0"] == "to do"
    assert states["split-cifar100/ogd-0"] == "no data"


def test_figures_are_drawn_from_the_runs(first, root):
    out, _, _ = first
    result = invoke("figure1", "figure2", "--preset", "released", "--seeds", "2", "--out", out, "--data-root", root)
    assert result.exit_code == 0, result.stderr
    for name in ("figure1", "figure2"):
        for ending in ("svg", "pdf", "md"):
            assert str(out / "released" / f"{name}.{ending}") in result.stdout.splitlines()
        assert (out / "released" / f"{name}.svg").read_text().startswith("<svg")
    assert "200 training images" in (out / "released" / "figure1.md").read_text()


def test_a_damaged_record_is_one_line(first, root, tmp_path):
    out, _, _ = first
    record = out / "released" / "split-mnist" / "sgd-0" / "record.json"
    whole = record.read_text()
    try:
        record.write_text(whole[:100])
        result = invoke("table1", "--preset", "released", "--seeds", "2", "--out", out, "--data-root", root)
        assert result.exit_code == 2
        assert "sgd-0/record.json must be the record of a run" in result.stderr
        record.write_text(whole.replace('"average_accuracy": 0.', '"average_accuracy": 1.'))
        result = invoke("table1", "--preset", "released", "--seeds", "2", "--out", out, "--data-root", root)
        assert result.exit_code == 2
        assert "it was changed after it was written" in result.stderr
    finally:
        record.write_text(whole)


def test_data_that_is_absent_is_said_loudly_with_the_command_that_gets_it(tmp_path):
    result = invoke("table1", "table7", "--out", tmp_path / "out", "--data-root", tmp_path / "none")
    assert result.exit_code == 1
    for dataset, name in (("mnist", "table1"), ("tiny-imagenet", "table7")):
        assert f"SKIPPED, all or in part: {name}: `{dataset}` was not found" in result.stderr
        assert f"Get it with: sfao data get {dataset} --data-root {tmp_path / 'none'}" in result.stderr
    assert "no data set that these tables need" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_dry_run_lists_and_writes_nothing(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["table1", "table7", "--preset", "recommended", "--out", "out"]
    result = invoke(*names, "--data-root", root, "--dry-run")
    assert (result.exit_code, result.stderr.count("SKIPPED")) == (0, 1)
    assert result.stdout.startswith("out/recommended:\n")
    assert re.search(r"\nsplit-mnist/sfao-4 +to do", result.stdout)
    assert "50 runs: 25 to do, 25 no data" in result.stdout
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tabel1"], "got 'tabel1' (did you mean 'table1'?)"),
        (
            ["table1", "--preset", "relased"],
            "`preset` must be one of paper, released, recommended, got 'relased' (did you",
        ),
        (["table1", "--preset", "paper", "--as-released"], "`--as-released` takes the released preset, got 'paper'"),
        (["table1", "--fraction", "2"], "`fraction` must be in (0, 1], got 2"),
        (["table1", "--seeds", ""], "`seeds` must be how many"),
        (["table1", "--out", __file__], f"`out` must be a folder, got the file {__file__}"),
        (["table1", "--jobs", "0"], "--jobs"),
        ([], "Missing argument"),
    ],
)
def test_bad_input_is_told_in_a_line_or_two_and_writes_nothing(arguments, message, root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "250")
    result = invoke(*arguments, "--data-root", root)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(VARIABLE not in os.environ, reason=f"${VARIABLE} names no data")
def test_a_quick_look_at_table_1_on_real_digits(tmp_path):
    code, text, error = reproduce("table1", "--quick", "--fraction", "0.005", "--out", tmp_path / "out")
    assert code == 0, error
    assert "On a part of the data: 305 training images of mnist (0.508 %)." in text
    assert (tmp_path / "out" / "paper" / "table1-quick-fraction0.005.md").exists()
    assert not (tmp_path / "out" / "paper" / "table1.md").exists()
    rows = json.loads((tmp_path / "out" / "paper" / "table1-quick-fraction0.005.json").read_text())["rows"]
    assert all(30 < row["cells"][5]["ours"]["mean"] < 90 for row in rows)


def test_a_wide_resnet_has_a_gpu_for_itself_and_other_runs_share_one():
    from sfao.lab.cli.reproduce import _assign_workers
    from sfao.lab.run.config import configure
    from sfao.lab.run.jobs import Job

    def jobs(device):
        settings = [{"device": device, "model.name": model} for model in ("mlp", "wrn-28-10")]
        return [Job(configure("split-mnist", "sgd", settings=each), Path("sgd-0")) for each in settings]

    assert _assign_workers(jobs("cpu"), None, True) == {None: jobs("cpu")}
    assert _assign_workers(jobs("cuda"), 3, True) == {3: jobs("cuda")}
    small, wide = jobs("cuda")
    assert _assign_workers([small, wide], None, True) == {4: [small], 1: [wide]}
    assert _assign_workers([small, wide], None, False) == {None: [small, wide]}


def test_runs_of_several_places_are_told_by_their_places(root, tmp_path):
    out = tmp_path / "out"
    arguments = ["table8", "--preset", "released", "--seeds", "1", "--jobs", "2", "--out", out, "--data-root", root]
    code, _, error = reproduce(*arguments)
    assert code == 0, error
    places = ("split-mnist", "permuted-mnist", "permuted-mnist-tasks5")
    lines = error.splitlines()
    assert lines[:3] == [f"{out / 'released' / place}: 2 runs to do" for place in places]
    told = sorted(line.partition(": done: accuracy")[0] for line in lines[3:])
    assert told == sorted(f"{place}/{method} seed 0" for place in places for method in ("ogd", "sfao"))
    assert all((out / "released" / place / f"{method}-0" / "record.json").exists()
               for place in places for method in ("ogd", "sfao"))  # fmt: skip
