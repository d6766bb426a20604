"""The README as a new user follows it."""

import re
import subprocess
import sys
from pathlib import Path

from tests.command import run_program

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def run(code: str, folder: Path) -> list[str]:
    file = folder / "pasted.py"
    file.write_text(code)
    done = run_program(file, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_loop_runs_and_prints_what_the_readme_says(tmp_path):
    code = blocks("python")[0]
    promised = re.findall(r"^print.*  # (.*)$", code, re.MULTILINE)
    assert len(promised) == 3
    (tmp_path / "pasted.py").write_text(code)
    # Nothing is loaded before: what the code does not import is not there.
    done = subprocess.run(
        [sys.executable, "-W", "error", "pasted.py"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == promised


def test_the_gate_of_the_readme_runs(tmp_path):
    run(blocks("python")[0] + blocks("python")[1], tmp_path)


def test_the_diff_turns_sgd_into_sfao(tmp_path):
    """The lines of the diff, applied to a plain SGD loop, are a program that runs and gates."""
    diff = blocks("diff")[0].splitlines()
    body = "\n".join(line[1:] for line in diff if not line.startswith("-"))
    setting = blocks("python")[0].split("def learn(")[0]
    setting += "tasks = [make_task() for _ in range(4)]\nloss = nn.CrossEntropyLoss()\n"
    setting += "model = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 10))\n"
    (projected,) = run(f"{setting}\n{body}\nprint(optimizer.counts['0']['project'])", tmp_path)
    assert int(projected) > 60


def test_the_budget_line():
    from torch import nn

    import sfao

    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    plan = sfao.SFAO(sfao.layer_groups(model), memory_budget="64MiB").memory_plan
    assert f"`{plan}`" in README


def test_documented_defaults_are_the_real_ones():
    from sfao.gating.options import DEFAULTS

    rows = re.findall(r"^\| `(\w+)` \| (\S+) \|", (ROOT / "docs" / "method.md").read_text(), re.MULTILINE)
    documented = {name: value.strip('`"') for name, value in rows if name in DEFAULTS}
    for name, value in documented.items():
        assert str(DEFAULTS[name]) == value or float(DEFAULTS[name]) == float(value)
    assert documented.keys() == DEFAULTS.keys() - {"rank"}
