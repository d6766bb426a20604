"""accelerate: a gate stays in front of a prepared optimizer, and save_state has its memory."""

from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from torch.nn.functional import cross_entropy

import sfao
from sfao.integrations.attached import find_attached
from tests.integrations.tasks import make_network, make_tasks, measure_gap, measure_memory_gap, train


@pytest.fixture(autouse=True)
def _forget_the_accelerator():
    yield
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


class Loop:
    """A training loop as accelerate's pages write it."""

    def __init__(self, **options):
        self.accelerator = Accelerator(cpu=True, **options)
        model = make_network()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
        self.gate = sfao.Gate(model).attach(optimizer)
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)

    def train(self, task):
        for batch in task:
            with self.accelerator.accumulate(self.model):
                inputs, targets = batch
                self.accelerator.backward(cross_entropy(self.model(inputs), targets))
                self.optimizer.step()
                self.optimizer.zero_grad()


def test_a_prepared_optimizer_is_gated_as_one_that_is_not():
    tasks = make_tasks()
    loop = Loop()
    model = make_network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    gate = sfao.Gate(model).attach(optimizer)
    for task in tasks:
        loop.train(task)
        loop.gate.consolidate(task, cross_entropy)
        train(model, optimizer, task)
        gate.consolidate(task, cross_entropy)
    assert find_attached(loop.optimizer) is loop.gate
    assert loop.gate.counts == gate.counts
    assert measure_gap(loop.model, model) == 0.0


@pytest.mark.parametrize("options", [{}, {"gradient_accumulation_steps": 2}, {"mixed_precision": "bf16"}], ids=str)
def test_resumed_from_a_saved_state_nothing_differs(tmp_path: Path, options):
    first, second = make_tasks(2)
    straight = Loop(**options)
    straight.train(first)
    straight.gate.consolidate(first, cross_entropy)
    straight.train(second[:2])
    straight.accelerator.save_state(str(tmp_path / "state"))
    straight.train(second[2:])
    straight.gate.consolidate(second, cross_entropy)

    resumed = Loop(**options)
    resumed.accelerator.load_state(str(tmp_path / "state"))
    assert resumed.gate.tasks == 1
    resumed.train(second[2:])
    resumed.gate.consolidate(second, cross_entropy)
    assert measure_gap(straight.model, resumed.model) == 0.0
    assert measure_memory_gap(straight.gate.state_dict(), resumed.gate.state_dict()) == 0.0
