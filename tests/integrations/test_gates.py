"""The gate of an optimizer: found through wrappers, and carried from the optimizer of one task to that of the next."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import sfao
from sfao.integrations.gates import find_gate, move_gate, place_gate, remember_task


def make_model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))


def make_batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.randn(8, 6), torch.randint(0, 3, (8,))) for _ in range(3)]


def measure_loss(model, batch):
    return cross_entropy(model(batch[0]), batch[1])


def make_sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def list_gated(gate):
    return {parameter for layer in gate.layers for parameter in layer.parameters}


class Wrapper(torch.optim.Optimizer):
    """A wrapper as trainers put around an optimizer."""

    def __init__(self, optimizer):
        self.optimizer = optimizer


def test_a_gate_is_found_behind_wrappers_until_it_is_detached():
    model = make_model()
    optimizer = make_sgd(model)
    assert find_gate(optimizer) is None
    gate = sfao.Gate(sfao.layer_groups(model)).attach(optimizer)
    assert find_gate(Wrapper(Wrapper(optimizer))) is gate
    gate.detach()
    assert find_gate(optimizer) is None
    own = sfao.SFAO(sfao.layer_groups(model))
    assert find_gate(Wrapper(own)) is own.gate


def test_a_new_gate_is_over_all_that_the_optimizer_moves():
    model = make_model()
    gate = place_gate(None, torch.optim.SGD(model[2].parameters()), model, {"keep": 0.3})
    assert list_gated(gate) == set(model[2].parameters())
    assert gate.param_groups[0]["keep"] == 0.3


def test_the_gate_of_an_earlier_optimizer_keeps_its_memory():
    model, first = make_model(), None
    first = make_sgd(model)
    gate = place_gate(None, first, model, {})
    remember_task(first, model, make_batches(), measure_loss, None)
    second = make_sgd(model)
    assert place_gate(gate, second, model, {}) is gate
    assert find_gate(first) is None
    assert gate.task == 1
    assert place_gate(gate, second, model, {}) is gate


@pytest.mark.parametrize("same_optimizer", [True, False])
def test_layers_that_are_new_are_gated_where_all_were(same_optimizer):
    model = make_model()
    optimizer = make_sgd(model)
    gate = place_gate(None, optimizer, model, {})
    remember_task(optimizer, model, make_batches(), measure_loss, None)
    model.append(nn.Linear(3, 3))
    if same_optimizer:
        optimizer.add_param_group({"params": list(model[3].parameters())})
    else:
        optimizer = make_sgd(model)
    place_gate(gate, optimizer, model, {})
    assert list_gated(gate) == set(model.parameters())


def test_layers_that_were_left_free_stay_free():
    model = make_model()
    gate = sfao.Gate(sfao.layer_groups(model)[:1]).attach(make_sgd(model))
    optimizer = make_sgd(model)
    move_gate(gate, optimizer, model)
    assert list_gated(gate) == set(model[0].parameters())


def test_sfao_of_a_new_task_goes_on_with_the_memory_and_new_momentum():
    model = make_model()
    first, second = (sfao.SFAO(sfao.layer_groups(model), lr=0.1, momentum=0.9) for _ in range(2))
    measure_loss(model, make_batches()[0]).backward()
    first.step()
    remember_task(first, model, make_batches(), measure_loss, None)
    assert not any(first.state.values())
    assert place_gate(first.gate, second, model, {}) is second.gate
    assert (second.gate.task, second.memory_bytes) == (1, first.memory_bytes)


def test_two_memories_are_refused_and_stay():
    model = make_model()
    first, second = (sfao.SFAO(sfao.layer_groups(model), lr=0.1) for _ in range(2))
    for optimizer in (first, second):
        optimizer.consolidate(model, make_batches())
    with pytest.raises(ValueError, match="an optimizer must have one gate, but this one comes with a memory") as raised:
        place_gate(first.gate, second, model, {})
    assert len(str(raised.value).splitlines()) == 1
    assert (first.gate.task, second.gate.task) == (1, 1)


def test_a_gate_of_another_model_is_refused():
    gate = sfao.Gate(sfao.layer_groups(nn.Linear(2, 2)))
    model = make_model()
    with pytest.raises(ValueError, match="`model` must hold the gated layers"):
        place_gate(gate, make_sgd(model), model, {})


def test_a_task_cannot_be_remembered_without_a_gate():
    model = make_model()
    with pytest.raises(ValueError, match="a task can be remembered by an optimizer with a gate"):
        remember_task(make_sgd(model), model, make_batches(), measure_loss, None)
