"""`sfao bench` as a user types it."""

import json

import pytest
from typer.testing import CliRunner

from sfao.lab.cli.app import app
from tests.command import run


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """(folder of the results, what the command printed)"""
    out = tmp_path_factory.mktemp("bench") / "deep" / "er"
    done = run("bench", "--quick", "--directions", "10,50", "--threads", "1", "--out", out)
    assert (done.returncode, done.stderr) == (0, "")
    return out, done.stdout


def test_it_writes_json_and_a_table_and_names_them(measured):
    out, text = measured
    assert {path.name for path in out.iterdir()} == {"bench.json", "bench.md"}
    assert text.splitlines()[-2:] == [str(out / "bench.json"), str(out / "bench.md")]
    found = json.loads((out / "bench.json").read_text())
    assert [(row["group"], row["name"]) for row in found["rows"]] == [
        *(("mlp, DriftBound", name) for name in ("SGD", "AdamW", "DriftBound")),
        *(
            (f"mlp, {count} directions", name)
            for count in (10, 50)
            for name in ("SGD", "released-code loop", "SFAO dense", "SFAO factored rank 1")
        ),
    ]
    held = [row["memory_bytes"] for row in found["rows"][3:]]
    assert held == [0, 8_141_200, 8_141_200, 52_320, 0, 40_706_000, 40_706_000, 261_600]
    # On every machine: with fifty directions the gate costs something, and dense directions more than factors.
    sgd, released, dense, factored = (row["ms"] for row in found["rows"][7:])
    assert sgd < factored < dense < released
    assert (found["machine"]["threads"], found["cpu_time"]) == ("1", True)
    for row in found["rows"]:
        numbers = (f"{row['ms']:,.2f}", f"{row['times_sgd']:,.2f}", f"{row['memory_bytes'] / 1e6:,.2f}")
        for shown in (text, (out / "bench.md").read_text()):
            assert any(row["name"] in line and all(number in line for number in numbers) for line in shown.splitlines())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "mpl"], "`model` must be one of mlp, cnn, wrn-28-10, got 'mpl' (did you mean 'mlp'?)"),
        (["--device", "tpu"], "`device` must be one that this machine has, got 'tpu'"),
        (["--directions", "10,,50"], "`directions` must be whole numbers of at least 1 with commas between"),
        (["--directions", "0"], "`directions` must be whole numbers of at least 1"),
        (["--rank", "-1"], "`rank` must be whole numbers of at least 1"),
        (["--batch-size", "0"], "--batch-size"),
        (["--out", "file"], "`out` must be a folder, got the file file"),
        (["--out", "file/deeper"], "`out` must be a folder, got the file file"),
    ],
)
def test_bad_input_is_told_in_a_line_and_measures_nothing(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["bench", "--quick", *arguments])
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
