from itertools import islice

import pytest
import torch
from pydantic import ValidationError
from torch.nn.functional import cross_entropy

from sfao.lab.methods.method import TaskView
from sfao.lab.methods.sfao import SFAOOptions
from sfao.optimizer import SFAO
from sfao.options import OPTIONS
from tests.lab.methods.short_runs import assert_resumes_anywhere, events, learn, make, stream, weights

LIVELY = {"accept_above": 0.5, "discard_below": -0.2, "samples": 3, "capacity": 6}


@pytest.mark.parametrize("model", ["mlp", "cnn"])
@pytest.mark.parametrize("scenario", ["domain", "task", "class"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_accepting_everything_is_sgd(scenario, model, momentum):
    tasks = stream(scenario)
    options = {"accept_above": -1, "discard_below": -1}
    plain = learn(make("sgd", tasks, model=model, momentum=momentum), tasks)
    method = learn(make("sfao", tasks, options, model, momentum=momentum), tasks)
    assert torch.equal(weights(method), weights(plain))
    assert "the gate had no effect" in method.concerns()[0]


@pytest.mark.parametrize("granularity", ["layer", "global"])
@pytest.mark.parametrize("scenario", ["domain", "task"])
@pytest.mark.parametrize("how", [{"target": "loss"}, {"target": "logit", "limit": 4}])
def test_it_is_the_optimizer_of_the_library(scenario, granularity, how):
    tasks = stream(scenario)
    method = learn(make("sfao", tasks, {**LIVELY, **how, "granularity": granularity}, momentum=0.5), tasks)

    model = make("sgd", tasks).model
    plain = {"lr": 0.1, "momentum": 0.5, "momentum_form": "heavy_ball"}
    optimizer = SFAO(model, **plain, seed=3, granularity=granularity, **LIVELY)
    for number, task in enumerate(tasks):
        order = torch.Generator().manual_seed(100 + number)
        for _ in range(2):
            for inputs, targets in task.train.batches(5, order):
                optimizer.zero_grad()
                cross_entropy(model(inputs)[:, task.outputs], targets).backward()
                optimizer.step()
        order = torch.Generator().manual_seed(number)
        batches = islice(task.train.batches(4, order), 1) if "limit" in how else task.train.as_sequence(5, order)
        optimizer.consolidate(batches, cross_entropy, model=TaskView(model, task.outputs), **how)

    assert torch.equal(weights(method), torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert method.decisions == optimizer.counts
    assert optimizer.memory_bytes >= method.memory_bytes > 0
    assert any(counts["project"] for counts in method.decisions.values())
    assert method.concerns() == []


@pytest.mark.parametrize(
    "options",
    [
        LIVELY,
        {**LIVELY, "storage": "factored", "target": "logit", "eviction": "reservoir"},
        {**LIVELY, "granularity": "global", "projection": "sequential", "cosine": "absolute", "eviction": "fifo"},
        {**LIVELY, "projection": "cone", "memory_dtype": "bfloat16", "capacity": 40},
    ],
)
@pytest.mark.parametrize("scenario", ["domain", "task"])
def test_it_resumes_anywhere(options, scenario):
    assert_resumes_anywhere("sfao", stream(scenario), options, momentum=0.5)


def test_it_resumes_with_a_cnn():
    assert_resumes_anywhere("sfao", stream(), LIVELY, "cnn")


def test_consolidating_leaves_the_mode_of_the_model():
    tasks = stream()
    method = make("sfao", tasks)
    modes = []
    method.model.register_forward_hook(lambda model, inputs, output: modes.append(model.training))
    method.end_task(0, tasks.tasks[0], torch.Generator())
    assert modes
    assert not any(modes)
    assert method.model.training


def test_a_layer_that_discards_everything_is_a_concern():
    tasks = stream()
    method = learn(make("sfao", tasks, {"accept_above": 1, "discard_below": 1}), tasks)
    (line,) = method.concerns()
    assert "'hidden1', 'classifier' after the first task was discarded" in line


def test_a_memory_that_spans_a_layer_is_a_concern():
    tasks = stream("task")
    method = make("sfao", tasks, {"capacity": 300})
    method.model.hidden1.requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    classifier = method.model.classifier
    for missing in (1, 0):
        for _ in range(classifier.weight.numel() + classifier.bias.numel() - missing - len(method_memory(method))):
            classifier.weight.grad = torch.randn(classifier.weight.shape, generator=generator)
            classifier.bias.grad = torch.randn(classifier.bias.shape, generator=generator)
            method.optimizer.remember()
        lines = method.concerns()
        assert bool(lines) is (missing == 0)
    assert "layer 'classifier' spans all its parameters" in lines[0]
    assert "`capacity` is 300" in lines[0]


def method_memory(method):
    return method.optimizer.gate.layers[-1].memory


def test_one_task_is_no_concern():
    tasks = stream()
    method = make("sfao", tasks)
    for event in events(tasks)[: len(events(tasks)) // 3]:
        event(method)
    assert method.concerns() == []


def test_the_defaults_are_those_of_the_gate():
    assert {name: getattr(SFAOOptions(), name) for name in OPTIONS} == OPTIONS
    made = make("sfao", stream()).optimizer
    assert {name: made.param_groups[0][name] for name in OPTIONS} == OPTIONS
    assert made.gate.seed == 3


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"accept_above": 2}, r"`accept_above` must be in \[-1, 1\], got 2"),
        ({"accept_above": 0.2, "discard_below": 0.5}, "`discard_below` must not exceed `accept_above`"),
        ({"projection": "spam"}, "did you mean 'span'"),
        ({"capacity": 0}, "`capacity` must be a whole number"),
        ({"granularity": "tensor"}, "`granularity` must be one of layer, global"),
        ({"target": "loss", "per": "epoch"}, "`per` must be one of batch, example"),
        ({"limit": 0}, "`limit` must be a whole number"),
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
