"""States: training goes on from them bit for bit, and they are refused where they don't belong."""

import copy
import io

import pytest
import torch
from torch import nn

from sfao.gate import Gate
from sfao.optimizer import SFAO
from tests.problem import PROJECT, loss, make_trained, network, task, train, weights

# Small layers, whose directions span them, are quick.
pytestmark = pytest.mark.filterwarnings("ignore:the directions of these layers span:RuntimeWarning")
OPTIONS = [
    {"momentum": 0.9, "samples": 3, "capacity": 8, "eviction": "reservoir"},
    {**PROJECT, "storage": "factored", "rank": 2, "memory_dtype": "bfloat16", "capacity": 7},
    {**PROJECT, "granularity": "global", "projection": "cone"},
]


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def go_on(model, optimizer):
    train(model, optimizer, task(3)[2:])
    optimizer.consolidate(task(3), loss)
    train(model, optimizer, task(4))
    return weights(model)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_training_goes_on_bit_for_bit(options):
    model, optimizer = make_trained(3, **options)
    train(model, optimizer, task(3)[:2])
    state, weights_state = through_a_file(optimizer.state_dict()), copy.deepcopy(model.state_dict())
    other_model = network(seed=9)
    other_model.load_state_dict(weights_state)
    other = SFAO(other_model, **options)
    other.load_state_dict(state)
    assert torch.equal(go_on(model, optimizer), go_on(other_model, other))
    assert optimizer.counts == other.counts
    assert optimizer.memory_bytes == other.memory_bytes


def test_a_gate_travels_in_the_state_of_its_optimizer():
    def make(seed):
        model = network(seed)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        return model, optimizer, Gate(model, samples=2).attach(optimizer)

    model, optimizer, gate = make(0)
    train(model, optimizer, task(0))
    gate.consolidate(task(0), loss)
    for group in gate.param_groups:
        group["accept_above"] = 0.3
    other_model, other_optimizer, other = make(1)
    other_optimizer.load_state_dict(through_a_file(optimizer.state_dict()))
    other_model.load_state_dict(model.state_dict())
    for trio in ((model, optimizer), (other_model, other_optimizer)):
        train(*trio, task(1))
    assert torch.equal(weights(model), weights(other_model))
    assert other.tasks == 1
    assert other.param_groups[0]["accept_above"] == 0.3
    alone = Gate(network(2))
    alone.load_state_dict(gate.state_dict())
    assert alone.counts == gate.counts


def test_options_of_the_saved_state_hold():
    _, optimizer = make_trained(1, capacity=4, storage="factored", samples=2)
    other = SFAO(network())
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["capacity"] == 4
    assert other.gate.layers[0].options is other.param_groups[0]
    assert other.gate.layers[0].memory.parts[0].kind == "factored"
    other.param_groups[0]["samples"] = 0
    with pytest.raises(ValueError, match="`samples`"):
        other.step()


def snapshot(optimizer):
    return optimizer.state_dict()["sfao"]["checksum"], optimizer.param_groups[0]["lr"], optimizer.gate.tasks


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("sfao"), "must come from SFAO, with a key 'sfao', got keys"),
        (lambda state: state.update(gate=state.pop("sfao")), "was saved by sfao 0.1, which this version can't load"),
        (lambda state: state.update(sfao={"task": 1, "layers": {}}), "was saved by sfao 0.1"),
        (lambda state: state.update(sfao={"layers": {}}), "must come from SFAO or a Gate, got keys"),
        (lambda state: state["sfao"]["layers"]["0"]["counts"].update(accept=99), "damaged: its checksum is wrong"),
        (lambda state: state["sfao"]["layers"]["0"]["parts"][0]["tensors"][0][0].add_(1), "damaged"),
        (lambda state: state["sfao"].pop("checksum"), "damaged"),
    ],
)
def test_states_that_cannot_be_loaded(change, message):
    _, optimizer = make_trained(1)
    state = copy.deepcopy(optimizer.state_dict())
    change(state)
    other_model, other = make_trained(2, model=network(1))
    before, held = snapshot(other), weights(other_model)
    with pytest.raises(RuntimeError, match=message) as caught:
        other.load_state_dict(state)
    assert "\n" not in str(caught.value)
    assert snapshot(other) == before
    assert torch.equal(weights(other_model), held)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: SFAO(nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 4))),
            r"must belong to this model, with shapes in layer '2' \[\[4, 8\], \[4\]\], got \[\[3, 8\], \[3\]\]",
        ),
        (lambda: SFAO(nn.Linear(12, 8)), r"with layers \['\(root\)'\], got \['0', '2'\]"),
        (lambda: SFAO(network(), granularity="global"), "with granularity global, got layer"),
    ],
)
def test_states_of_other_models(make, message):
    _, optimizer = make_trained(1)
    with pytest.raises(RuntimeError, match=message):
        make().load_state_dict(optimizer.state_dict())


def test_the_state_of_another_optimizer_is_refused():
    model = network()
    behind = torch.optim.SGD(model.parameters(), lr=0.1)
    Gate(model).attach(behind)
    with pytest.raises(RuntimeError, match="must come from SFAO, got that of another optimizer"):
        SFAO(model).load_state_dict(behind.state_dict())


def test_a_checkpointer_that_drops_the_memory_is_noticed():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gate = Gate(model).attach(optimizer)
    gate.consolidate(task(0), loss)
    state = {key: value for key, value in optimizer.state_dict().items() if key != "sfao"}
    fresh = torch.optim.SGD(model.parameters(), lr=0.1)
    Gate(model).attach(fresh)
    with pytest.raises(RuntimeError, match="must hold the memory of 1 tasks under 'sfao'"):
        fresh.load_state_dict(state)


def test_a_memory_beside_other_weights_is_noticed_at_the_next_step():
    _, optimizer = make_trained(1)
    model = network(seed=5)
    other = SFAO(model, lr=0.1)
    other.load_state_dict(optimizer.state_dict())
    before = weights(model)
    for act in (lambda: train(model, other, task(1)), lambda: other.consolidate(task(1), loss)):
        with pytest.raises(
            RuntimeError, match=r"belongs to other weights: those of layer '0' are .*load the weights too"
        ):
            act()
    assert torch.equal(weights(model), before)


def test_weights_may_be_loaded_after_the_memory_and_train_on():
    model, optimizer = make_trained(1)
    state = optimizer.state_dict()
    train(model, optimizer, task(1))  # the weights have moved on a little
    other_model = network(seed=5)
    other = SFAO(other_model, lr=0.1)
    other.load_state_dict(state)
    other_model.load_state_dict(model.state_dict())
    train(other_model, other, task(1))
