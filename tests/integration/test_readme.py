"""The README as a new user follows it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

import sfao
from sfao.drift_bound import DriftBound
from sfao.options import OPTIONS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_it_is_short():
    assert len(README.splitlines()) <= 120


def test_the_program_runs_and_prints_what_the_readme_says(tmp_path):
    (code,) = blocks("python")
    promised = re.findall(r"^print.*  # (.*)$", code, re.MULTILINE)
    assert len(promised) == 4
    (tmp_path / "pasted.py").write_text(code)
    # In a new process: nothing is imported before.
    done = subprocess.run(
        [sys.executable, "-W", "error", "pasted.py"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == promised


def test_the_diff_bounds_a_plain_loop():
    body = "\n".join(line[1:] for line in blocks("diff")[0].splitlines())
    model = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 10))
    tasks = [[(torch.randn(20, 40), torch.randint(0, 10, (20,))) for _ in range(9)] for _ in range(2)]
    names = {"torch": torch, "sfao": sfao, "model": model, "tasks": tasks, "loss": nn.CrossEntropyLoss()}
    exec(body, names)
    assert names["bound"].tasks == 2
    assert names["bound"].telemetry()["acted"] > 0


def test_the_worst_loss_of_a_bound_is_that_of_its_record():
    runs = json.loads((ROOT / "docs" / "records" / "drift_streams.json").read_text())["runs"]
    averages = {
        (run["optimizer"], run["seed"], run["tolerance"]): run["average"] for run in runs if run["stream"] == "same"
    }
    gains = [averages[name, seed, 0.1] - averages[name, seed, 0] for name, seed, tolerance in averages if tolerance]
    (written,) = re.findall(r"up to (\.\d+) below the optimizer alone", README)
    assert f"{-min(gains):.3f}".lstrip("0") == written


def test_documented_defaults_are_the_real_ones():
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \|", (ROOT / "docs" / "method.md").read_text(), re.MULTILINE)
    bound = DriftBound(nn.Linear(2, 2))
    real = OPTIONS | {name: getattr(bound, name) for name in ("tolerance", "every", "energy", "examples", "clip")}
    documented = {name: value.strip('`"') for name, value in rows}
    for name, value in documented.items():
        assert str(real[name]) == value or float(real[name]) == float(value)
    assert documented.keys() == real.keys() - {"rank"}
