"""The ends of softness on a device: updates and counts are those of the host."""

import pytest
import torch
from torch import nn

from sfao import SFAO, Decision, layer_groups
from tests.on_device import DEVICE

pytestmark = pytest.mark.usefixtures("_on_device")


def test_projected_emptied_kept_and_zero_gradients():
    model = nn.ModuleDict({name: nn.Linear(6, 4) for name in ("projected", "emptied", "kept", "zero")}).to(DEVICE)
    groups = layer_groups(model)
    groups[2]["keep"] = 1.0
    optimizer = SFAO(groups, lr=0.1, memory="subspace", keep=0, restore=1)
    complete = torch.linalg.qr(torch.randn(7, 7)).Q.to(DEVICE)
    sizes = {"projected": 3, "emptied": 7, "kept": 3, "zero": 7}
    optimizer.gate.set_axes({name: complete[:count] for name, count in sizes.items()})
    for _ in range(3):
        given = {}
        for name, layer in model.items():
            given[name] = torch.randn(4, 7, device=DEVICE) * (name != "zero")
            layer.weight.grad, layer.bias.grad = given[name][:, :6].clone(), given[name][:, 6].clone()
        optimizer.step()
        updates = {name: torch.cat([m.weight.grad, m.bias.grad[:, None]], 1) for name, m in model.items()}
        expected = given["projected"] - given["projected"] @ complete[:3].T @ complete[:3]
        assert torch.allclose(updates["projected"], expected, atol=1e-5)
        assert not updates["emptied"].any()
        assert torch.equal(updates["kept"], given["kept"])
    assert optimizer.gate._path.is_open  # it was a device that counted
    decisions = {"projected": Decision.PROJECT, "emptied": Decision.DISCARD, "kept": Decision.ACCEPT}
    assert optimizer.last_decisions == decisions
    none = {"accept": 0, "project": 0, "discard": 0, "zero": 0}
    assert optimizer.counts == {
        **{name: {**none, str(decision): 3} for name, decision in decisions.items()},
        "zero": {**none, "zero": 3},
    }
