"""A new storage is its own file and a line in the dict: options, budgets, costs and states read the rest from it."""

import pytest
import torch
from torch import Tensor, nn

from sfao import SFAO, Decision, layer_groups
from sfao.gating._block import Stack
from sfao.gating.dense import DenseBlock
from sfao.gating.options import CHOICES
from sfao.gating.storage import STORAGES, Storage

SMALL = 0.1


class ThinnedBlock(DenseBlock):
    """The example of CONTRIBUTING.md."""

    kind = "thinned"

    def encode(self, gradients: Stack, scales: Tensor) -> list[Tensor]:
        rows = super().encode(gradients, scales)
        largest = torch.stack([row.abs().amax(1) for row in rows]).amax(0)[:, None]
        return [row.where(row.abs() >= SMALL * largest, 0.0) for row in rows]


@pytest.fixture(autouse=True)
def _thinned(monkeypatch):
    monkeypatch.setitem(STORAGES, "thinned", ThinnedBlock)
    monkeypatch.setitem(CHOICES, "storage", tuple(STORAGES))


def remembering() -> tuple[nn.Module, SFAO]:
    torch.manual_seed(0)
    model = nn.Linear(7, 5)
    optimizer = SFAO(layer_groups(model), lr=0.1, storage="thinned", accept_above=1.0, discard_below=-1.0)
    for _ in range(4):
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.remember()
    return model, optimizer


def test_it_is_stored_projected_off_and_measured():
    model, optimizer = remembering()
    rows = torch.cat(optimizer.gate.layers[0].memory.blocks[0].used, dim=1)
    assert 0 < float((rows == 0).float().mean()) < 0.5
    gradient = [torch.randn_like(parameter) for parameter in model.parameters()]
    for parameter, one in zip(model.parameters(), gradient, strict=True):
        parameter.grad = one
    optimizer.step()
    assert optimizer.last_decisions == {"(root)": Decision.PROJECT}
    update = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    assert (rows @ update).abs().max() < 1e-5
    assert optimizer.memory_bytes == 4 * 4 * 40
    assert str(Storage("thinned", 1, "bfloat16")) == "thinned bfloat16"


def test_it_is_saved_and_loaded():
    _, optimizer = remembering()
    other = SFAO(layer_groups(nn.Linear(7, 5)), storage="thinned")
    other.load_state_dict(optimizer.state_dict())
    one, two = (o.gate.layers[0].memory.blocks[0] for o in (optimizer, other))
    assert type(two) is ThinnedBlock
    assert all(torch.equal(a, b) for a, b in zip(one.used, two.used, strict=True))


def test_an_unknown_kind_in_a_state_is_refused():
    _, optimizer = remembering()
    state = optimizer.state_dict()
    state["gate"]["layers"]["(root)"]["memory"]["blocks"][0]["kind"] = "sparse"
    with pytest.raises(RuntimeError, match="a block of kind 'sparse'"):
        SFAO(layer_groups(nn.Linear(7, 5)), storage="thinned").load_state_dict(state)
