"""`sfao bench` as a user types it."""

import json
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from sfao.lab.cli.app import app
from tests.command import run


def invoke(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """(folder of the results, what the command printed)"""
    out = tmp_path_factory.mktemp("bench") / "deep" / "er"
    done = run("bench", "--quick", "--threads", "1", "--out", out)
    assert (done.returncode, done.stderr) == (0, "")
    return out, done.stdout


def test_it_leaves_json_a_table_and_a_figure_and_names_them(measured):
    out, text = measured
    files = {path.name for path in out.iterdir()}
    assert files == {"bench.json", "bench.md", "bench.svg", "bench.pdf"}
    assert text.splitlines()[-4:] == [str(out / f"bench.{ending}") for ending in ("json", "md", "svg", "pdf")]
    assert (out / "bench.pdf").read_bytes().startswith(b"%PDF")
    assert "var(--" not in (out / "bench.svg").read_text()
    assert ElementTree.parse(out / "bench.svg").getroot().tag.endswith("svg")


def test_the_numbers_hang_together(measured):
    found = json.loads((measured[0] / "bench.json").read_text())
    assert [row["name"] for row in found["rows"][:2]] == ["SGD", "DriftBound"]
    assert found["rows"][0]["memory_bytes"] == 0
    assert found["rows"][1]["memory_bytes"] > 4 * 203_530  # a copy of the weights, and axes
    assert found["rows"][0]["ms"] < found["rows"][1]["ms"]
    of_directions = found["rows"][2:]
    assert [(row["directions"], row["name"]) for row in of_directions] == [
        (directions, name)
        for count in (10, 50)
        for directions, name in (
            (0, "SGD"),
            (count, "released-code loop"),
            (count, "SFAO dense, float32"),
            (count, "SFAO factored rank 1, float32"),
        )
    ]
    for row in found["rows"]:
        assert row["parameters"] == 203_530
        assert 0 < row["low_ms"] <= row["ms"] <= row["high_ms"]
        sgd = next(other["ms"] for other in found["rows"] if other["group"] == row["group"])
        assert row["times_sgd"] == row["ms"] / sgd
        assert row["extra_ms"] == row["ms"] - sgd
        assert set(row["decided"]) <= {"project"}
    held = [row["memory_bytes"] for row in of_directions]
    assert held == [0, 8_141_200, 8_141_200, 52_320, 0, 40_706_000, 40_706_000, 261_600]
    # What every machine must find: with fifty directions the gate costs something, and rows more than factors.
    sgd, released, dense, factored = (row["ms"] for row in of_directions[4:])
    assert sgd < factored < dense < released
    assert found["machine"]["threads"] == "1"
    assert found["cpu_time"]


def test_the_screen_and_the_table_show_the_same(measured):
    out, text = measured
    for row in json.loads((out / "bench.json").read_text())["rows"]:
        line = next(line for line in text.splitlines() if f"{row['ms']:.2f}" in line and row["name"] in line)
        assert f"{row['times_sgd']:.2f}" in line
    table = (out / "bench.md").read_text()
    assert table.count("| SFAO dense, float32 |") == 2
    assert table.count("| DriftBound |") == 1
    assert "cpu, batch 32; 1 CPU threads; torch" in table
    assert "took turns in one process" in table


def test_other_precisions_mixtures_and_samples_say_so(tmp_path):
    result = invoke(
        *("bench", "--quick", "--model", "cnn", "--directions", "12", "--samples", "4,all,20", "--decisions", "mix"),
        *("--storage", "factored", "--rank", "1,2", "--memory-dtype", "bfloat16", "--batch-size", "2"),
        *("--channels-last", "--autocast", "bfloat16", "--out", tmp_path, "--json"),
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found == json.loads((tmp_path / "bench.json").read_text())
    assert found["setting"] == "cpu, batch 2, channels last, bfloat16 autocast"
    gated = [row for row in found["rows"] if row["directions"]]
    assert [(row["rank"], row["samples"]) for row in gated] == [(1, 4), (2, 4), *2 * [(1, 12), (2, 12)]]
    assert all(set(row["decided"]) & {"accept", "project", "discard"} for row in gated)
    assert {path.name for path in tmp_path.iterdir()} == {"bench.json", "bench.md"}  # nothing was varied to be drawn
    assert "accepted/projected/discarded" in (tmp_path / "bench.md").read_text()


def test_what_is_too_large_is_said_to_be_left_out(tmp_path):
    result = invoke(
        *("bench", "--quick", "--directions", "10,50", "--max-memory", "10MB", "--out", tmp_path, "--quiet")
    )
    assert (result.exit_code, result.stdout) == (0, "")
    assert (
        "Left out, too large: mlp, SFAO dense, float32, 50 directions: 0.0 GB." in (tmp_path / "bench.md").read_text()
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "mpl"], "`model` must be one of mlp, cnn, wrn-28-10, got 'mpl' (did you mean 'mlp'?)"),
        (["--device", "tpu"], "`device` must be one that this machine has, got 'tpu'"),
        (["--device", "meta"], "`device` must be one that this machine has, got 'meta'"),
        (["--directions", "10,,50"], "`directions` must be whole numbers of at least 1 with commas between"),
        (["--directions", "0"], "`directions` must be whole numbers of at least 1"),
        (["--directions", "10,10"], "`directions` must name each one once, got '10,10'"),
        (["--samples", "some"], "`samples` must be whole numbers of at least 1 with commas between, got 'some'"),
        (["--storage", "sparse"], "`storage` must be one of dense, factored, got 'sparse'"),
        (["--rank", "-1"], "`rank` must be whole numbers of at least 1"),
        (["--memory-dtype", "float16"], "`memory-dtype` must be one of float32, bfloat16, got 'float16'"),
        (["--decisions", "project,reject"], "`decisions` must be one of project, accept, discard, mix, got 'reject'"),
        (["--compile", "loss"], "`compile` must be one of model, step, got 'loss'"),
        (["--autocast", "float16"], "`autocast` must be one of bfloat16, got 'float16'"),
        (["--max-memory", "much"], "`max-memory` must be a size such as '4GB' or a number of bytes, got 'much'"),
        (["--batch-size", "0"], "--batch-size"),
        (["--out", "file"], "`out` must be a folder, got the file file"),
        (["--out", "file/deeper"], "`out` must be a folder, got the file file"),
    ],
)
def test_bad_input_is_told_in_a_line_and_measures_nothing(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    result = invoke("bench", "--quick", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_it_is_offered_and_nothing_heavy_is_loaded_to_say_so():
    code = (
        "import sys; from typer.testing import CliRunner; from sfao.lab.cli.app import app; "
        "[print(CliRunner().invoke(app, asked).stdout) for asked in (['--help'], ['bench', '--help'])]; "
        "print([name for name in ('torch', 'matplotlib', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert " bench " in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
