import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from tests.command import run_program

ROOT = Path(__file__).parents[2]

ONLY_TORCH = """
import sys
import torch
before = set(sys.modules)
import sfao
sfao.SFAO, sfao.Gate, sfao.Decision, sfao.layer_groups
new = {name.split(".")[0] for name in set(sys.modules) - before}
ours = new - set(sys.stdlib_module_names) - {"sfao", "torch"}
print(sorted(ours))
"""


def test_importing_sfao_needs_torch_and_nothing_else():
    done = subprocess.run([sys.executable, "-c", ONLY_TORCH], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_public_names():
    import sfao

    assert set(sfao.__all__) == {
        "SFAO",
        "Decision",
        "DriftBound",
        "Gate",
        "NonFiniteGradient",
        "__version__",
        "layer_groups",
    }


def test_the_version_is_the_installed_one_and_needs_no_installation():
    import sfao

    assert sfao.__version__ == version("sfao")
    # Without site-packages: nothing is installed there, and the sources are all there is.
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); import sfao; print(sfao.__version__)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == sfao.__version__


def test_the_demo_ends_in_its_table(tmp_path):
    """One seed and two epochs suffice here; `make demo` runs five of each."""
    load = f"import sys; sys.path.insert(0, {str(ROOT / 'examples')!r}); import two_tasks as demo"
    (tmp_path / "short.py").write_text(f"{load}\ndemo.SEEDS, demo.EPOCHS = range(1), 2\ndemo.main()\n")
    done = run_program(tmp_path / "short.py", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    rows = {cells[1].strip(): [float(c) for c in cells[2:-1]] for cells in _cells(done.stdout)}
    assert set(rows) == {"SGD", "SFAO", "SFAO, factored", "DriftBound"}
    forgotten = {name: numbers[2] for name, numbers in rows.items()}
    assert forgotten["SFAO"] < forgotten["SGD"] / 2
    assert forgotten["SFAO, factored"] < forgotten["SGD"] / 2
    assert forgotten["DriftBound"] < forgotten["SGD"] / 2


def _cells(output: str) -> list[list[str]]:
    return [line.split("│") for line in output.splitlines() if line.startswith("│")]
