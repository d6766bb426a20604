"""The telemetry of a gate and of a bound in a log."""

import pytest
import torch
from torch import nn

from sfao.drift_bound import DriftBound
from sfao.gate import Gate
from sfao.lab.loggers import CSVLogger
from sfao.optimizer import SFAO
from tests.lab.loggers.test_csv_logger import read


@pytest.mark.parametrize("kind", [SFAO, Gate, DriftBound])
def test_the_telemetry_goes_from_a_loop_into_a_log(tmp_path, kind):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    task = [(torch.randn(8, 6), torch.randint(0, 3, (8,))) for _ in range(4)]
    loss = nn.CrossEntropyLoss()
    if kind is SFAO:
        keeper = optimizer = SFAO(model, lr=0.1)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        keeper = kind(model).attach(optimizer)
    keeper.consolidate(task, loss)
    with CSVLogger(tmp_path) as logger:
        for step, (x, y) in enumerate(task, start=1):
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
            logger.log(keeper.telemetry(), step)
    last = {name: value for step, name, value in read(tmp_path) if step == 4}
    assert last == keeper.telemetry()
    assert last["memory_bytes"] == keeper.memory_bytes > 0
    assert "layers/0/drift" in last if kind is DriftBound else "layers/0/cosine" in last
