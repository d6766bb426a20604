"""The walks through the code: a step and a consolidation enter few files, and a step on the CPU none of a device's."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import sfao

ROOT = Path(sfao.__file__).parent
DEVICE_FILES = {"optim/_device_path.py", "optim/_choose_path.py", "optim/_gate_path.py"}


#: What puts things back if a call fails stands around the walk, not on it.
GUARDS = {
    "optim/_whole_or_not.py",
    "optim/_precision.py",
    "optim/_books.py",
    "gating/_journal.py",
    "gating/_known_products.py",
}


def walk(call: Callable[[], object]) -> set[str]:
    """The files of the package that a call enters, without those that guard it."""
    entered = set()

    def enter(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
            entered.add(Path(frame.f_code.co_filename).relative_to(ROOT).as_posix())

    sys.setprofile(enter)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered - GUARDS


class Training:
    def __init__(self, **options):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 5))
        self.loss = nn.CrossEntropyLoss()
        self.batches = [(torch.randn(16, 40), torch.randint(0, 5, (16,))) for _ in range(8)]
        self.optimizer = sfao.SFAO(
            sfao.layer_groups(self.model), memory="directions", lr=0.05, momentum=0.9, **{"capacity": 100, **options}
        )

    def backward(self):
        inputs, targets = self.batches[0]
        self.optimizer.zero_grad()
        self.loss(self.model(inputs), targets).backward()

    def consolidate(self, **how):
        return self.optimizer.consolidate(self.model, self.batches, self.loss, **how)


@pytest.mark.parametrize("storage", ["dense", "factored"])
@pytest.mark.parametrize("samples", [3, 100])
def test_a_step_on_the_cpu_enters_at_most_eight_files(storage, samples):
    training = Training(storage=storage, samples=samples, accept_above=1.0, discard_below=-1.0)
    training.consolidate()
    for _ in range(2):  # the first step builds the projection
        training.backward()
        entered = walk(training.optimizer.step)
    assert set(training.optimizer.last_decisions.values()) == {sfao.Decision.PROJECT}
    assert len(entered) <= 8, sorted(entered)
    assert not entered & DEVICE_FILES
    assert not any("device" in file for file in entered)


@pytest.mark.parametrize(
    ("options", "how"),
    [
        ({}, {}),
        ({}, {"target": "logit"}),
        ({"storage": "factored"}, {"target": "logit"}),
    ],
    ids=str,
)
def test_consolidating_enters_at_most_twelve_files(options, how):
    training = Training(**options)
    for _ in range(2):
        entered = walk(lambda: training.consolidate(**how))
        assert len(entered) <= 12, sorted(entered)
        training.backward()
        training.optimizer.step()


def test_truncating_the_gradients_of_batches_takes_one_file_more():
    """The best factors of low rank are an algorithm of their own."""
    entered = walk(Training(storage="factored").consolidate)
    assert "gating/_low_rank.py" in entered
    assert len(entered) <= 13, sorted(entered)
