"""The gate or bound of an optimizer: found through wrappers, and carried from one optimizer to the next."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import sfao
from sfao.integrations.attached import attach, check_arguments, consolidate_task, find_attached

KINDS = [sfao.Gate, sfao.DriftBound]


def make_model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


BATCHES = [(torch.randn(8, 6), torch.randint(0, 3, (8,))) for _ in range(3)]


def measure_loss(model, batch):
    return cross_entropy(model(batch[0]), batch[1])


def make_sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def learn(model, optimizer):
    optimizer.zero_grad()
    measure_loss(model, BATCHES[0]).backward()
    optimizer.step()
    consolidate_task(optimizer, model, BATCHES, measure_loss, None)


def list_gated(gate):
    return {parameter for layer in gate.layers for parameter in layer.parameters}


class Wrapper(torch.optim.Optimizer):
    """A wrapper as trainers put around an optimizer."""

    def __init__(self, optimizer):
        self.optimizer = optimizer


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_found_behind_wrappers_until_it_is_detached(kind):
    model = make_model()
    optimizer = make_sgd(model)
    assert find_attached(optimizer) is None
    attached = kind(model).attach(optimizer)
    assert find_attached(Wrapper(Wrapper(optimizer))) is attached
    attached.detach()
    assert find_attached(optimizer) is None
    own = sfao.SFAO(model)
    assert find_attached(Wrapper(own)) is own.gate


def test_a_new_gate_covers_all_that_the_optimizer_optimizes():
    model = make_model()
    gate = attach(sfao.Gate, None, torch.optim.SGD(model[2].parameters()), model, {"accept_above": 0.3})
    assert list_gated(gate) == set(model[2].parameters())
    assert gate.param_groups[0]["accept_above"] == 0.3


@pytest.mark.parametrize("kind", KINDS)
def test_the_one_of_an_earlier_optimizer_keeps_its_memory(kind):
    model = make_model()
    first = make_sgd(model)
    attached = attach(kind, None, first, model, {})
    learn(model, first)
    second = make_sgd(model)
    assert attach(kind, attached, second, model, {}) is attached
    assert find_attached(first) is None
    assert attached.tasks == 1
    assert attach(kind, attached, second, model, {}) is attached
    learn(model, second)
    assert attached.tasks == 2


@pytest.mark.parametrize("same_optimizer", [True, False])
def test_new_layers_are_gated_where_all_were(same_optimizer):
    model = make_model()
    optimizer = make_sgd(model)
    gate = attach(sfao.Gate, None, optimizer, model, {})
    consolidate_task(optimizer, model, BATCHES, measure_loss, None)
    model.append(nn.Linear(3, 3))
    if same_optimizer:
        optimizer.add_param_group({"params": list(model[3].parameters())})
    else:
        optimizer = make_sgd(model)
    attach(sfao.Gate, gate, optimizer, model, {})
    assert list_gated(gate) == set(model.parameters())


def test_sfao_of_a_new_task_continues_with_the_memory_and_new_momentum():
    model = make_model()
    first, second = (sfao.SFAO(model, lr=0.1) for _ in range(2))
    learn(model, first)
    assert not any(first.state.values())
    assert attach(sfao.Gate, first.gate, second, model, {}) is second.gate
    assert second.gate.tasks == 1
    assert [len(layer.memory) for layer in second.gate.layers] == [len(layer.memory) for layer in first.gate.layers]


def test_two_memories_are_refused_and_stay():
    model = make_model()
    first, second = (sfao.SFAO(model, lr=0.1) for _ in range(2))
    for optimizer in (first, second):
        optimizer.consolidate(BATCHES, cross_entropy)
    with pytest.raises(ValueError, match="an optimizer must have one memory, but this one comes with a Gate") as raised:
        attach(sfao.Gate, first.gate, second, model, {})
    assert len(str(raised.value).splitlines()) == 1
    assert (first.gate.tasks, second.gate.tasks) == (1, 1)


@pytest.mark.parametrize(
    ("kind", "message"), [(sfao.Gate, "layer '0'"), (sfao.DriftBound, "`model` must be the model")]
)
def test_the_one_of_another_model_is_refused(kind, message):
    attached = kind(nn.Sequential(nn.Linear(2, 2)))
    model = make_model()
    with pytest.raises(ValueError, match=message):
        attach(kind, attached, make_sgd(model), model, {})


def test_a_task_cannot_be_consolidated_without_one():
    model = make_model()
    with pytest.raises(ValueError, match="only an optimizer with a Gate or DriftBound can consolidate"):
        consolidate_task(make_sgd(model), model, BATCHES, measure_loss, None)


@pytest.mark.parametrize(
    ("kind", "given", "options", "limit", "message"),
    [
        (sfao.Gate, sfao.Gate, {"samples": 5}, None, "options are for a new Gate, but one is given too, got samples"),
        (sfao.Gate, sfao.DriftBound, {}, None, "a Gate was expected, got a DriftBound"),
        (sfao.DriftBound, None, {}, 5, "`limit` is for gates; a DriftBound has `examples`, got limit=5"),
    ],
)
def test_arguments_that_contradict_each_other(kind, given, options, limit, message):
    with pytest.raises(ValueError, match=message):
        check_arguments(kind, given and given(make_model()), options, limit)
