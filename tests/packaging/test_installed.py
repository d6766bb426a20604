"""The wheel, installed where nothing else is: with torch and numpy alone, and with the extra `lab`."""

import shutil
import tomllib

import pytest

import sfao
from sfao.lab.cli.demo import list_methods
from tests.packaging.conftest import ROOT
from tests.packaging.environments import install

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: A slice of the data.
SMALL = "--set fraction=0.05 --set epochs=1"

TRAINING = """
import importlib.util, sys
import torch
from torch import nn
import sfao

for absent in ("typer", "rich", "pydantic", "yaml", "scipy", "matplotlib", "pooch"):
    assert importlib.util.find_spec(absent) is None, absent

torch.manual_seed(0)
loss = nn.CrossEntropyLoss()
tasks = [[(x, (x[:, feature] > 0).long()) for x in torch.randn(4, 8, 6)] for feature in (0, 1)]


def train(model, optimizer, consolidate):
    for task in tasks:
        for x, y in task:
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
        consolidate(task, loss)


def network():
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))


for options in ({}, {"projection": "cone"}, {"projection": "sequential"}, {"storage": "factored"}):
    model = network()
    optimizer = sfao.SFAO(model, lr=0.1, accept_above=1, discard_below=-1, **options)
    train(model, optimizer, optimizer.consolidate)
    assert set(optimizer.last_decisions.values()) == {sfao.Decision.PROJECT}
    assert optimizer.memory_bytes > 0

model = network()
optimizer = torch.optim.AdamW(model.parameters())
train(model, optimizer, sfao.Gate(model).attach(optimizer).consolidate)

model = network()
optimizer = torch.optim.AdamW(model.parameters())
bound = sfao.DriftBound(model).attach(optimizer)
train(model, optimizer, bound.consolidate)
assert bound.tasks == 2
print(sfao.__version__, sfao.__file__)
"""

EVERY_MODULE = """
import importlib, pkgutil
import sfao
from sfao.checks import MissingLibrary
missing = []
for module in pkgutil.walk_packages(sfao.__path__, "sfao."):
    try:
        importlib.import_module(module.name)
    except MissingLibrary:
        missing.append(module.name)
    except ImportError as error:
        missing.append(f"{module.name}: {error}")
print(missing)
"""


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory):
    return install(tmp_path_factory.mktemp("bare") / "env", wheel, PROJECT["dependencies"])


def test_torch_and_numpy_suffice_to_train(bare):
    version, _, file = bare.python(TRAINING).strip().partition(" ")
    assert version == sfao.__version__
    assert file.startswith(str(bare.folder))


def test_the_command_says_which_extra_is_missing(bare):
    done = bare.run("sfao", "demo")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("sfao: the command needs the extra `lab` (missing: matplotlib, ")
    assert line.endswith("pip install 'sfao[lab]'")


@pytest.fixture(scope="module")
def laboratory(wheel, tmp_path_factory):
    """Every package of the laboratory is there, and no other."""
    asked = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["lab"]]
    return install(tmp_path_factory.mktemp("laboratory") / "env", wheel, asked, extras="[lab]")


@pytest.mark.parametrize(
    ("command", "methods"),
    [
        (f"compare split-mnist-5k --methods sgd,sfao --seeds 1 --jobs 1 {SMALL}", ["sgd", "sfao"]),
        pytest.param("demo --quick", list_methods(), marks=pytest.mark.soak),
    ],
)
def test_a_comparison_runs_from_the_wheel_with_the_extra(laboratory, command, methods):
    done = laboratory.run("sfao", *command.split(), "--out", "runs")
    assert done.returncode == 0, done.stderr
    shown = [line.split()[0] for line in done.stdout.splitlines() if line]
    first = shown.index("method") + 2  # below the rule
    assert shown[first : first + len(methods)] == list(methods)
    assert (laboratory.folder / "work" / "runs" / "comparison.md").is_file()
    shutil.rmtree(laboratory.folder / "work" / "runs")


def test_every_module_of_the_laboratory_can_be_imported_from_the_wheel(laboratory):
    assert laboratory.run("sfao", "--version").stdout == f"sfao {sfao.__version__}\n"
    integrations = [f"sfao.integrations.{name}" for name in ("avalanche", "lightning", "peft", "transformers")]
    assert laboratory.python(EVERY_MODULE).strip() == str(integrations)
