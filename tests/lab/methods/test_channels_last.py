"""Every method with weights whose channels lie last in memory, as the laboratory lays them on a GPU."""

import pytest
import torch

from sfao.lab.methods import METHODS
from sfao.lab.run.device import place_model
from tests.lab.methods.scenarios import set_scenario
from tests.lab.methods.short_runs import learn, make, stream

GATED = {"accept_above": 0.5}
#: Every method with its defaults, and those that store gradients with other storages and forms of them.
CASES = [
    *((name, {}) for name in METHODS),
    ("sfao", {**GATED, "storage": "dense", "projection": "sequential", "granularity": "global"}),
    ("sfao", {**GATED, "storage": "factored", "rank": 2}),
    ("ogd", {"target": "loss", "storage": "dense"}),
    ("ogd", {"target": "loss", "storage": "factored", "rank": 2}),
]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_the_order_in_memory_changes_nothing(name, options):
    tasks = stream(set_scenario(name).get("scenario", "domain"))
    plain, turned = (make(name, tasks, options, "cnn") for _ in range(2))
    for parameter in turned.model.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    assert any(not parameter.is_contiguous() for parameter in turned.model.parameters())
    learn(plain, tasks)
    learn(turned, tasks)
    for one, other in zip(plain.model.parameters(), turned.model.parameters(), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-3, atol=1e-5)


def test_a_model_stays_as_it_is_on_a_cpu_and_ours_has_its_channels_last_on_a_gpu():
    model = make("sgd", stream(), {}, "cnn").model
    assert place_model(model, torch.device("cpu"), is_own=True) is model
    assert all(parameter.is_contiguous() for parameter in model.parameters())
    if torch.cuda.is_available():
        for is_own in (False, True):
            weights = [p for p in place_model(model, torch.device("cuda"), is_own=is_own).parameters() if p.ndim == 4]
            assert weights[-1].is_contiguous() is not is_own
