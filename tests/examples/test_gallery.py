"""The examples on images, on a small slice of them; the page that shows what they print."""

import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

from sfao.lab.data.cifar import CIFAR10_FORMAT as CIFAR10
from tests.lab.data.publishers import pictures, write_cifar_binary

EXAMPLES = Path(__file__).parents[2] / "examples"
PAGE = (EXAMPLES / "README.md").read_text()
#: With the images per class that make them quick; the one that is stopped needs some batches.
GALLERY = {"adamw_bound": 4, "checkpoint_resume": 20, "cnn_batchnorm_cifar": 4, "head_per_task": 4}
NUMBERS = re.compile(r"-?\d+(?:\.\d+)?(?: \d+\.\d+)*")


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run an example as `python examples/NAME.py --slice N` does, in this process; return what it prints, as lines."""
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setenv("SFAO_DATA", str(tmp_path))
    threads = torch.get_num_threads()

    def run(name: str, images: int) -> list[str]:
        monkeypatch.setattr(sys, "argv", [name, "--slice", str(images)])
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    yield run
    torch.set_num_threads(threads)
    sys.modules.pop("real_data", None)


def show(name: str) -> list[str]:
    """Return what the page says that an example prints, as lines."""
    section = PAGE.split(f"## [{name}.py]")[1]
    return re.findall(r"^```text\n(.*?)^```", section, re.DOTALL | re.MULTILINE)[0].splitlines()


def mask(line: str) -> str:
    return NUMBERS.sub("#", line)


@pytest.mark.parametrize("name", GALLERY)
def test_it_runs_on_digits_says_so_and_prints_what_the_page_shows(run, name):
    notice, data, *results = run(name, GALLERY[name])
    wanted = notice.split()[0]
    assert notice.endswith(f"(`sfao data get {wanted}` fetches it): on the embedded digits instead")
    assert data.startswith("mnist-5k: ")
    shown = show(name)
    assert mask(shown[0].split(":")[1]) == mask(data.split(":")[1])
    assert [mask(line) for line in results] == [mask(line) for line in shown[1:]]
    if name == "checkpoint_resume":
        assert [line[-4:] for line in results[1::2]] == ["True"] * 3


def test_where_the_data_are_there_they_are_taken(run, tmp_path):
    write_cifar_binary(tmp_path, CIFAR10, pictures(CIFAR10, train=40, test=20))
    data, *results = run("cnn_batchnorm_cifar", 2)
    assert data.startswith("cifar10: 3 tasks of 2 classes")
    assert len(results) == 4


def test_the_page_names_every_example():
    files = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb")} - {"real_data.py"}
    assert set(re.findall(r"\]\(([\w.]+\.(?:py|ipynb))\)", PAGE)) == files
