"""DriftBound in the laboratory: the library's class, behind the descent of all methods."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, AdamW

from sfao.decision import NonFiniteGradient
from sfao.drift_bound import DriftBound
from sfao.lab.methods.drift_bound import BATCH
from sfao.lab.streams.seeding import make_generator
from tests.lab.methods.short_runs import events, learn, make, resume, stream, weights

TIGHT = {"tolerance": 0.02, "every": 3}


@pytest.mark.parametrize("model", ["mlp", "cnn"])
@pytest.mark.parametrize("scenario", ["domain", "task", "class"])
@pytest.mark.parametrize("optimizer", ["momentum", "adamw"])
def test_it_is_the_bound_of_the_library(optimizer, scenario, model):
    tasks = stream(scenario, model)
    method = learn(make("drift-bound", tasks, TIGHT, model, optimizer=optimizer, lr=0.02), tasks)

    twin = make("sgd", tasks, model=model).model
    kind, settings = (SGD, {"momentum": 0.9}) if optimizer == "momentum" else (AdamW, {"weight_decay": 0})
    plain = kind(twin.parameters(), lr=0.02, **settings)
    bound = DriftBound(twin, seed=3, **TIGHT).attach(plain)
    for what, number, arguments in events(tasks):
        if what == "step":
            inputs, targets, outputs = arguments
            plain.zero_grad()
            cross_entropy(twin(inputs)[:, outputs], targets).backward()
            plain.step()
        elif what == "end":
            task = arguments[1]
            batches = task.train.batches(BATCH, make_generator(number, "end"))
            bound.consolidate(batches, lambda logits, y, task=task: cross_entropy(logits[:, task.outputs], y))
            plain.state.clear()

    assert torch.equal(weights(method), weights(twin))
    assert method.memory_bytes == bound.memory_bytes > 0
    assert method.concerns() == []
    assert method.decisions == {}


def test_telemetry_by_layer():
    tasks = stream()
    method = make("drift-bound", tasks, TIGHT)
    assert method.layer_telemetry == {}
    learn(method, tasks)
    looks = method.layer_telemetry
    assert set(looks) == {"hidden1", "classifier"}
    for look in looks.values():
        assert set(look) == {"drift", "allowed", "acted", "clipped"}
        assert look["drift"] <= 1.001 * look["allowed"] == pytest.approx(1.001 * 0.02 / 3**0.5)
    assert sum(look["acted"] for look in looks.values()) > 0


def test_a_bound_that_never_acts_is_a_concern():
    tasks = stream()
    method = learn(make("drift-bound", tasks, {"tolerance": 1}, lr=1e-5), tasks)
    assert method.concerns() == ["drift-bound: no layer ever exceeded its allowed drift; `tolerance` is 1"]


class Scaled(nn.Module):
    """A network with a parameter that cannot be bounded."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.scale, self.head = nn.Linear(12, 8), nn.Parameter(torch.ones(8)), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(torch.relu(self.hidden(x.flatten(1))) * self.scale)


def test_parameters_without_a_bound_are_a_concern_and_survive_a_resume():
    tasks = stream()
    plain = make("drift-bound", tasks, TIGHT)
    methods = [type(plain)(Scaled(), plain.training, plain.options) for _ in range(2)]
    learn(methods[0], tasks)
    (line,) = methods[0].concerns()
    assert line.startswith("drift-bound: these parameters can't be bounded and train as usual: scale")
    assert resume(*methods).concerns() == [line]


def test_weights_that_diverge_end_the_run_as_divergence():
    tasks = stream()
    method = make("drift-bound", tasks, TIGHT)
    asked = events(tasks)
    for event in asked[: len(asked) // 3 + 3]:  # two steps of the second task
        event(method)
    method.model.hidden1.weight.data[0, 0] = torch.nan
    with pytest.raises(NonFiniteGradient, match="hidden1"):
        asked[len(asked) // 3 + 3](method)
