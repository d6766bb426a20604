from itertools import islice

import pytest
import torch
from pydantic import ValidationError
from torch.nn.functional import cross_entropy

from sfao.gate import Gate
from sfao.lab.methods.method import TaskView
from sfao.lab.methods.sfao import SFAOOptions
from sfao.lab.streams.seeding import make_generator
from sfao.optimizer import SFAO
from sfao.options import OPTIONS
from tests.lab.methods.short_runs import events, learn, make, stream, weights

LIVELY = {"accept_above": 0.5, "discard_below": -0.2, "samples": 3, "capacity": 6}


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("granularity", ["layer", "global"])
@pytest.mark.parametrize("scenario", ["domain", "task"])
@pytest.mark.parametrize("how", [{"target": "loss"}, {"target": "logit", "limit": 4}])
def test_it_is_the_gate_of_the_library(scenario, granularity, how, optimizer):
    tasks = stream(scenario)
    options = {**LIVELY, **how, "granularity": granularity}
    training = {"momentum": 0.5} if optimizer == "sgd" else {"optimizer": optimizer, "lr": 0.01}
    method = learn(make("sfao", tasks, options, **training), tasks)

    twin = make("sgd", tasks).model
    settings = {"seed": 3, "granularity": granularity, **LIVELY}
    if optimizer == "sgd":
        plain = gate = SFAO(twin, lr=0.05, momentum=0.5, momentum_form="heavy_ball", **settings)
    else:
        plain = torch.optim.AdamW(twin.parameters(), lr=0.01, weight_decay=0)
        gate = Gate(twin, **settings).attach(plain)
    for what, number, arguments in events(tasks):
        if what == "step":
            inputs, targets, outputs = arguments
            plain.zero_grad()
            cross_entropy(twin(inputs)[:, outputs], targets).backward()
            plain.step()
        elif what == "end":
            task, order = arguments[1], make_generator(number, "end")
            train = task.train
            batches = islice(train.batches(4, order), 1) if "limit" in how else train.as_sequence(8, order)
            gate.consolidate(batches, cross_entropy, model=TaskView(twin, task.outputs), **how)
            plain.state.clear()

    assert torch.equal(weights(method), weights(twin))
    assert method.decisions == gate.counts
    assert gate.memory_bytes >= method.memory_bytes > 0
    assert any(counts["project"] for counts in method.decisions.values())
    assert method.concerns() == []


def test_a_layer_that_discards_everything_is_a_concern():
    tasks = stream()
    method = learn(make("sfao", tasks, {"accept_above": 1, "discard_below": 1}), tasks)
    (line,) = method.concerns()
    assert "'hidden1', 'classifier' after the first task was discarded" in line


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"accept_above": 2}, r"`accept_above` must be in \[-1, 1\], got 2"),
        ({"accept_above": 0.2, "discard_below": 0.5}, "`discard_below` must not exceed `accept_above`"),
        ({"projection": "spam"}, "did you mean 'span'"),
        ({"capacity": 0}, "`capacity` must be a whole number"),
        ({"granularity": "tensor"}, "granularity"),
        ({"target": "loss", "per": "epoch"}, "per"),
        ({"limit": 0}, "limit"),
        ({"memory_budget": "1MiB"}, "memory_budget"),
        ({"acept_above": 0.5}, "acept_above"),
    ],
)
def test_bad_options_are_refused_as_the_gate_would(options, rule):
    with pytest.raises(ValidationError, match=rule):
        SFAOOptions(**options)


def test_one_threshold_moves_the_default_of_the_other_and_reads_back():
    options = SFAOOptions(accept_above=-1)
    assert (options.accept_above, options.discard_below) == (-1, -1)
    assert SFAOOptions(**options.model_dump()) == options


def test_accepting_everything_is_sgd_and_a_concern():
    tasks = stream("task", "cnn")
    plain = learn(make("sgd", tasks, model="cnn", momentum=0.9), tasks)
    method = learn(make("sfao", tasks, {"accept_above": -1}, "cnn", momentum=0.9), tasks)
    assert torch.equal(weights(method), weights(plain))
    assert "the gate had no effect" in method.concerns()[0]


def test_a_memory_that_spans_a_layer_is_a_concern():
    tasks = stream()
    method = learn(make("sfao", tasks, {"capacity": 200, "target": "logit"}), tasks)
    (line,) = method.concerns()
    assert "layer 'classifier' spans all its parameters" in line
    assert "`capacity` is 200" in line


def test_the_defaults_are_those_of_the_gate():
    assert {name: getattr(SFAOOptions(), name) for name in OPTIONS} == OPTIONS
