"""The telemetry of a gate in a log."""

import pytest
import torch
from torch import nn

import sfao
from sfao.loggers import CSVLogger
from tests.loggers.test_csv_logger import read


@pytest.mark.parametrize("kind", ["SFAO", "Gate"])
def test_the_telemetry_of_a_gate_goes_from_a_loop_into_a_log(tmp_path, kind):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    task = [(torch.randn(8, 6), torch.randint(0, 3, (8,))) for _ in range(4)]
    loss = nn.CrossEntropyLoss()
    groups = sfao.layer_groups(model)
    if kind == "SFAO":
        gate = optimizer = sfao.SFAO(groups, lr=0.1, memory="both")
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        gate = sfao.Gate(groups, memory="both").attach(optimizer)
    gate.consolidate(model, task, loss)
    with CSVLogger(tmp_path) as logger:
        for step, (x, y) in enumerate(task, start=1):
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
            logger.log(gate.telemetry(), step)
    last = {name: value for step, name, value in read(tmp_path) if step == 4}
    assert last == gate.telemetry()
    for layer, counts in gate.counts.items():
        assert {name: last[f"layers/{layer}/{name}"] for name in counts} == counts
        assert last[f"layers/{layer}/kept"] == gate.kept()[layer]
        assert last[f"layers/{layer}/cosine"] == gate.last_cosines[layer]
        assert last[f"layers/{layer}/drift"] == gate.drifts[layer]
    assert last["memory_bytes"] == gate.memory_bytes > 0
