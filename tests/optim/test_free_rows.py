"""Rows of a layer, outputs of the model, that no past task used: fresh heads learn as without a gate."""

import copy

import pytest
import torch
from torch import nn

from sfao import SFAO, Decision, Gate, layer_groups
from sfao.optim.reference import soften
from tests.optim.test_subspace import LOSS, as_matrix, second_moment, task, train


class Heads(nn.Module):
    """A body and the outputs of all tasks in one layer; `own` are those of the task at hand."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.heads = nn.Linear(12, 10), nn.Linear(10, 6)
        self.own = slice(0, 2)

    def forward(self, inputs):
        return self.heads(torch.relu(self.body(inputs)))[:, self.own]


def test_rows_that_no_past_task_used_are_free():
    model = Heads()
    optimizer = SFAO(layer_groups(model), lr=0.1)
    train(model, optimizer, task(0, classes=2))
    optimizer.consolidate(model, task(0, classes=2), LOSS)
    body, heads = (layer.spaces[0] for layer in optimizer.gate.layers)
    assert heads.used_rows.tolist() == [True] * 2 + [False] * 4
    assert body.is_used_whole

    model.own = slice(2, 4)
    inputs, targets = task(1, classes=2)[0]
    optimizer.zero_grad()
    LOSS(model(inputs), targets).backward()
    free = model.heads.weight.grad.clone()
    optimizer.step()
    assert torch.equal(model.heads.weight.grad, free)
    assert optimizer.last_decisions == {"body": Decision.PROJECT, "heads": Decision.ACCEPT}
    assert optimizer.drifts["heads"] == 0.0

    optimizer.consolidate(model, task(1, classes=2), LOSS)
    assert heads is not optimizer.gate.layers[1].spaces[0]
    assert optimizer.gate.layers[1].spaces[0].used_rows.tolist() == [True] * 4 + [False] * 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_rows_that_are_learnt_together_with_those_in_use_are_softened_like_them(dtype):
    """One softmax over old and new classes: a new one must not shout old ones down."""
    model = Heads()
    optimizer = SFAO(layer_groups(model), lr=0.1)
    train(model, optimizer, task(0, classes=2))
    optimizer.consolidate(model, task(0, classes=2), LOSS)
    model.to(dtype)
    model.own = slice(0, 6)
    inputs, targets = task(1, classes=6)[0]
    optimizer.zero_grad()
    LOSS(model(inputs.to(dtype)), targets).backward()
    layer = optimizer.gate.layers[1]
    before = as_matrix(layer)
    assert optimizer.gate.paths == {"body": 0.0, "heads": 0.0}
    optimizer.step()
    share = 0.6 ** (0.5 + (optimizer.drifts["heads"] / 0.15) ** 3)
    expected, _ = soften(before.double(), second_moment(layer.spaces[0]), share, restore=2.0)
    tolerance = 1e-2 if dtype == torch.bfloat16 else 1e-4
    torch.testing.assert_close(
        as_matrix(layer).double(), expected, rtol=tolerance, atol=tolerance * float(before.norm())
    )


def test_weight_decay_of_rows_in_use_does_not_bind_the_others():
    model = Heads()
    adam = torch.optim.AdamW(model.parameters(), lr=0.01)
    gate = Gate(layer_groups(model)).attach(adam)
    gate.consolidate(model, task(0, classes=2), LOSS)
    twin = copy.deepcopy(model)
    alone = torch.optim.AdamW(twin.parameters(), lr=0.01)
    for net, optimizer in ((model, adam), (twin, alone)):
        net.own = slice(2, 4)
        inputs, targets = task(1, classes=2)[0]
        LOSS(net(inputs), targets).backward()
        optimizer.step()
    assert gate.last_decisions["heads"] is Decision.PROJECT
    torch.testing.assert_close(model.heads.weight[2:4], twin.heads.weight[2:4], rtol=0, atol=1e-7)


def test_without_a_loss_all_rows_are_in_use():
    model = Heads()
    optimizer = SFAO(layer_groups(model), lr=0.1)
    optimizer.consolidate(model, task(0, classes=2))
    assert all(layer.spaces[0].is_used_whole for layer in optimizer.gate.layers)


def test_free_rows_outlive_a_checkpoint_and_older_states_have_none():
    model = Heads()
    optimizer = SFAO(layer_groups(model), lr=0.1)
    optimizer.consolidate(model, task(0, classes=2), LOSS)
    state = optimizer.state_dict()
    other = SFAO(layer_groups(model), lr=0.1)
    other.load_state_dict(state)
    assert other.gate.layers[1].spaces[0].used_rows.tolist() == [True] * 2 + [False] * 4
    assert not other.gate.layers[1].spaces[0].is_used_whole

    for layer in state["gate"]["layers"].values():
        del layer["seals"]
        for space in layer["spaces"]:
            del space["used_rows"]
    other.load_state_dict(state)
    assert other.gate.layers[1].spaces[0].is_used_whole


@pytest.mark.parametrize("grad", [True, False])
def test_a_model_may_change_what_its_layers_make_in_place(grad):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 10), nn.ReLU(inplace=True), nn.Linear(10, 4), nn.ReLU(inplace=True))
    optimizer = SFAO(layer_groups(model), lr=0.1)
    with torch.set_grad_enabled(grad):
        optimizer.consolidate(model, task(0, classes=4), LOSS)
    assert all(layer.spaces[0].is_used_whole for layer in optimizer.gate.layers)


def test_a_loss_that_is_flat_does_not_tell_what_it_looks_at():
    model = Heads()
    optimizer = SFAO(layer_groups(model), lr=0.1)
    optimizer.consolidate(model, task(0, classes=2), lambda outputs, targets: torch.relu(outputs - 1e6).mean())
    assert all(layer.spaces[0].is_used_whole for layer in optimizer.gate.layers)


def test_a_layer_that_is_zero_when_it_is_consolidated_learns_on():
    """As an adapter's second matrix is before it is trained."""
    model = Heads()
    nn.init.zeros_(model.heads.weight)
    nn.init.zeros_(model.heads.bias)
    optimizer = SFAO(layer_groups(model), lr=0.1)
    optimizer.consolidate(model, task(0, classes=2), LOSS)
    train(model, optimizer, task(1, classes=2))
    assert optimizer.counts["heads"]["discard"] == 0
    assert 0 < optimizer.gate.paths["heads"] < 100
    assert 0 < optimizer.drifts["heads"] < 100
