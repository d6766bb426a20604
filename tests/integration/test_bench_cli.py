"""`sfao bench` and `sfao estimate` as a user types them."""

import json
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from sfao.cli.app import app
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
    assert [(row["axes"], row["name"]) for row in found["rows"][:2]] == [(0, "SGD"), (200, "SFAO subspace, 200 axes")]
    assert [row["memory_bytes"] for row in found["rows"][:2]] == [0, 920_778]
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
        assert row["gate_ms"] == row["ms"] - sgd
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
    assert table.count("| SFAO subspace, 200 axes |") == 1
    assert "cpu, batch 32; 1 CPU threads; torch" in table
    assert "took turns in one process" in table


def test_other_precisions_mixtures_and_samples_say_so(tmp_path):
    result = invoke(
        *("bench", "--quick", "--model", "cnn", "--directions", "12", "--samples", "4,all,20", "--decisions", "mix"),
        *("--storage", "factored", "--rank", "1,2", "--memory-dtype", "bfloat16", "--batch-size", "2"),
        *("--channels-last", "--autocast", "bfloat16", "--memory", "directions", "--out", tmp_path, "--json"),
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


def test_the_subspace_alone_with_several_numbers_of_axes(tmp_path):
    result = invoke("bench", "--quick", "--memory", "subspace", "--axes", "5,40", "--out", tmp_path, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert [(row["group"], row["axes"]) for row in found["rows"]] == [
        ("mlp, 5 axes", 0), ("mlp, 5 axes", 5), ("mlp, 40 axes", 0), ("mlp, 40 axes", 40),
    ]  # fmt: skip
    assert all(set(row["decided"]) == {"project"} for row in found["rows"] if row["axes"])
    assert "axes a layer" in (tmp_path / "bench.svg").read_text()


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
        (["--memory", "subspaces"], "`memory` must be one of subspace, directions, got 'subspaces'"),
        (["--axes", "0"], "`axes` must be whole numbers of at least 1"),
        (["--memory", "directions", "--axes", "9"], "`axes` is an option of subspace, but `memory` is 'directions'"),
        (["--memory", "subspace", "--rank", "2"], "`rank` is an option of directions, but `memory` is 'subspace'"),
        (["--directions", "10,,50"], "`directions` must be whole numbers of at least 1 with commas between"),
        (["--directions", "0"], "`directions` must be whole numbers of at least 1"),
        (["--directions", "10,10"], "`directions` must name each one once, got '10,10'"),
        (["--samples", "some"], "`samples` must be whole numbers of at least 1 with commas between, got 'some'"),
        (["--storage", "sparse"], "`storage` must be one of dense, factored, got 'sparse'"),
        (["--rank", "-1"], "`rank` must be whole numbers of at least 1"),
        (["--memory-dtype", "float16"], "`memory-dtype` must be one of float32, bfloat16, got 'float16'"),
        (["--decisions", "project,reject"], "`decisions` must be one of project, accept, discard, mix, got 'reject'"),
        (["--graph"], "`graph` needs a CUDA device, got 'cpu'"),
        (["--compile", "loss"], "`compile` must be one of model, step, got 'loss'"),
        (["--autocast", "float16"], "`autocast` must be one of bfloat16, got 'float16'"),
        (["--max-memory", "much"], "`max-memory` must be a size such as '4GB' or a number of bytes, got 'much'"),
        (["--max-memory", "1kB"], "`max-memory` must let at least one case be measured, got '1kB'"),
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


def test_estimate_tells_bytes_and_time():
    done = run("estimate", "--model", "mlp", "--capacity", "50", "--storage", "factored", "--threads", "1")
    assert (done.returncode, done.stderr) == (0, "")
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert "203,530 parameters in 2 layers" in lines["model"]
    assert "factored rank 1 float32, 50 directions a layer" in lines["memory"]
    assert "261,600 bytes" in lines["directions"]
    assert "80,800 bytes" in lines["workspace"]
    assert "x SGD" in lines["step"]
    assert "on this machine in" in lines["calibrated"]


def test_estimate_is_of_the_default_where_nothing_is_said():
    done = run("estimate", "--model", "mlp", "--threads", "1")
    assert (done.returncode, done.stderr) == (0, "")
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert lines["memory"].endswith("subspace: 200 axes per layer")
    assert "920,778 bytes" in lines["axes"]
    assert "if every layer softens" in lines["gate"]
    assert "subspace" in lines["calibrated"]
    assert "directions" not in done.stdout


def test_estimate_of_axes_under_a_budget():
    result = invoke(
        *("estimate", "--model", "cnn", "--axes", 40, "--memory-budget", "256KiB", "--input", "1x8x8"),
        *("--batch-size", 4, "--json"),
    )
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["memory"], "capacity" in found) == ("subspace", False)
    assert 1 <= found["axes"] <= 40
    assert found["memory_bytes"] <= 2**18
    assert found["plan"].startswith(f"{found['axes']} axes per layer, ")
    assert found["times_sgd"] > 1


def test_estimate_for_scripts_and_under_a_budget():
    result = invoke(
        *("estimate", "--model", "cnn", "--capacity", 20, "--memory-budget", "1MiB", "--input", "1x8x8"),
        *("--classes", 3, "--batch-size", 4, "--json"),
    )
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["memory_bytes"] <= 2**20
    assert found["plan"].startswith(f"{found['storage']} rank {found['rank']} {found['memory_dtype']}, 20 directions")
    assert found["step_ms"] == found["sgd_ms"] + found["gate_ms"]
    assert found["times_sgd"] > 1
    assert found["calibration"]["seconds"] > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--model"),
        (["--model", "vgg"], "`model` must be one of mlp, cnn, wrn-28-10, got 'vgg'"),
        (["--model", "mlp", "--capacity", "0"], "`capacity` must be a whole number of at least 1, got 0"),
        (["--model", "mlp", "--rank", "0"], "`rank` must be a whole number of at least 1, got 0"),
        (["--model", "mlp", "--samples", "0"], "`samples` must be a whole number of at least 1, got 0"),
        (["--model", "mlp", "--storage", "sparse"], "`storage` must be one of dense, factored, got 'sparse'"),
        (["--model", "mlp", "--memory-budget", "1"], "`memory_budget` must hold at least one axis per layer"),
        (["--model", "mlp", "--memory-budget", "1", "--capacity", "9"], "must hold at least one direction a layer"),
        (["--model", "mlp", "--axes", "0"], "`axes` must be a whole number of at least 1, got 0"),
        (["--model", "mlp", "--memory", "both"], "`memory` must be one of subspace, directions, got 'both'"),
        (["--model", "mlp", "--axes", "9", "--rank", "2"], "`axes` and `rank` are options of different memories; give"),
        (["--model", "mlp", "--memory", "subspace", "--samples", "2"], "`samples` is an option of memory='directions'"),
        (["--model", "mlp", "--memory", "directions", "--axes", "2"], "`axes` is an option of memory='subspace'"),
        (["--model", "mlp", "--memory-budget", "lots"], "`memory_budget` must be a size such as '64MiB'"),
        (["--model", "mlp", "--memory-budget", "1MB", "--rank", "2"], "`memory_budget` picks `rank`"),
        (["--model", "cnn", "--input", "3x32"], "`input` must be channels x height x width, such as 3x32x32, got"),
        (["--model", "cnn", "--input", "3x2x2"], "`input_shape` must be at least 4x4 pixels for two poolings, got 2x2"),
        (["--model", "mlp", "--device", "gpu"], "`device` must be one that this machine has, got 'gpu'"),
    ],
)  # fmt: skip
def test_estimate_tells_bad_input_in_a_line(arguments, said):
    result = invoke("estimate", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_both_are_offered_and_nothing_heavy_is_loaded_to_say_so():
    code = (
        "import sys; from typer.testing import CliRunner; from sfao.cli.app import app; "
        "[print(CliRunner().invoke(app, asked).stdout) for asked in (['--help'], ['bench', '--help'])]; "
        "print([name for name in ('torch', 'matplotlib', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert " bench " in done.stdout
    assert " estimate " in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
