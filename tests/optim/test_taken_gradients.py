"""Consolidating fast: the same directions as one gradient after the other, and no gradient that is not needed."""

from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from sfao import SFAO, layer_groups
from tests.optim.problem import loss, network, task, train, weights
from tests.pairs import cover_pairs

# Small layers, whose directions span them, are what makes these tests quick.
pytestmark = pytest.mark.filterwarnings("ignore:the directions of these layers span:RuntimeWarning")


class OneByOne(nn.Module):
    """Looks at its inputs, as no vectorised pass can."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.calls = 0

    def forward(self, inputs):
        self.calls += 1
        return self.model(inputs) if float(inputs.sum()) < float("inf") else inputs


class Watched(Sequence):
    """Batches that tell which of them were looked at."""

    def __init__(self, batches) -> None:
        self.batches = batches
        self.looked_at = []

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, number):
        self.looked_at.append(number)
        return self.batches[number]


class Tied(nn.Module):
    """A weight that two layers share, one that is used twice, and one with more than one vector an example."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.twice = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 12)
        self.two.weight = self.one.weight
        self.parts, self.head = nn.Linear(4, 4), nn.Linear(12, 3, bias=False)

    def forward(self, x):
        x = torch.relu(self.two(torch.tanh(self.one(x))))
        x = self.twice(torch.tanh(self.twice(x)))
        return self.head(x + self.parts(x.unflatten(1, (3, 4))).flatten(1))


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(12, 30), nn.Linear(30, 3)

    def forward(self, x):
        return self.two(self.one(x).relu_()).mul_(2)


def convolutions() -> nn.Module:
    layers = [nn.Unflatten(1, (1, 3, 4)), nn.Conv2d(1, 9, 3, padding=1), nn.BatchNorm2d(9), nn.ReLU(inplace=True)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.5), nn.Linear(108, 20), nn.Tanh(), nn.Linear(20, 3))
    model(torch.randn(50, 12))
    return model


MODELS = {"mlp": network, "cnn": convolutions, "tied": Tied, "in place": InPlace}
WAYS = {
    "loss": {"loss": loss},
    "loss of examples": {"loss": loss, "per": "example"},
    "logit": {"target": "logit"},
    "logit of batches": {"target": "logit", "per": "batch"},
    "some": {"loss": loss, "limit": 4},
}


def held(optimizer: SFAO) -> dict[str, tuple[list[int], list[int], torch.Tensor]]:
    """By layer: tasks, arrivals and directions as vectors."""
    found = {}
    for layer in optimizer.gate.layers:
        parts = []
        for block in layer.memory.blocks:
            if block.kind == "factored":
                parts += [(block.used[0].mT @ right).flatten(1) for right in block.used[1:]]
            else:
                parts += [tensor.float() for tensor in block.used]
        found[layer.name] = (layer.memory.slots.tasks, layer.memory.slots.arrivals, torch.cat(parts, 1))
    return found


def assert_same(one: SFAO, two: SFAO, tolerance: float = 2e-5) -> None:
    for name, (tasks, arrivals, directions) in held(one).items():
        tasks_too, arrivals_too, directions_too = held(two)[name]
        assert tasks == tasks_too
        assert arrivals == arrivals_too
        assert len(directions) == len(tasks)
        assert torch.allclose(directions, directions_too, atol=tolerance)


OPTIONS = [
    {},
    {"storage": "factored"},
    {"storage": "factored", "rank": 2, "granularity": "global"},
    {"eviction": "fifo"},
    {"eviction": "reservoir", "memory_dtype": "bfloat16"},
    {"admit_below": 0.9},
    {"min_norm": 1e-3},
]


@pytest.mark.parametrize(("make", "way", "options"), cover_pairs(MODELS, WAYS, OPTIONS))
def test_the_same_directions_as_one_by_one(make, way, options):
    torch.manual_seed(0)
    model = make()
    fast, slow = (SFAO(layer_groups(model), memory="directions", capacity=5, **options) for _ in range(2))
    for number in range(3):
        batches = [*task(number), tuple(part[:7] for part in task(9)[0])]
        stored = [fast.consolidate(model, batches, **way), slow.consolidate(OneByOne(model), batches, **way)]
        assert stored[0] == stored[1] > 0
    # Low rank of batches amplifies rounding; bfloat16 rounds to three digits.
    assert_same(fast, slow, 8e-3 if "memory_dtype" in options else 2e-4)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("way", [WAYS["logit"], WAYS["loss of examples"]], ids=["logit", "loss"])
def test_many_examples_take_few_passes(make, way):
    model = make()
    passes = 0

    def count(*_):
        nonlocal passes
        passes += 1

    model.register_forward_hook(count)
    assert SFAO(layer_groups(model), memory="directions").consolidate(model, task(0), **way) >= 2 * 96
    assert passes == 2  # one plain, to compare with


@pytest.mark.parametrize("eviction", ["balanced", "fifo", "reservoir"])
def test_a_generator_gives_what_a_list_gives(eviction):
    model = network()
    one, two = (SFAO(layer_groups(model), memory="directions", capacity=4, eviction=eviction) for _ in range(2))
    for number in range(3):
        assert one.consolidate(model, task(number), loss) == two.consolidate(model, iter(task(number)), loss)
    assert_same(one, two)


def test_no_more_gradients_are_taken_than_are_held():
    model = OneByOne(network())
    optimizer = SFAO(layer_groups(model), memory="directions", capacity=6)
    for number, share in enumerate((6, 3, 2)):
        batches = Watched(task(number, batches=50))
        model.calls = 0
        assert optimizer.consolidate(model, batches, loss) == 2 * share  # two layers
        assert len(batches.looked_at) == share
        assert model.calls <= share + 2  # once more to look at, once to find that it cannot be vectorised
    model.calls = 0
    optimizer.consolidate(model, iter(task(3, batches=50)), loss)
    assert model.calls < 25  # of a stream, those that are held when they come


def test_first_in_first_out_looks_at_the_last_batches_only():
    model = network()
    optimizer = SFAO(layer_groups(model), memory="directions", capacity=6, eviction="fifo")
    batches = Watched(task(0, batches=50))
    optimizer.consolidate(model, batches, loss)
    assert batches.looked_at == list(range(44, 50))


@pytest.mark.parametrize("seeds", [100, pytest.param(400, marks=pytest.mark.soak)])
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_kept_is_uniform(stream, seeds):
    model = network()
    hits: Counter[int] = Counter()
    tasks = [task(number, batches=8) for number in range(2)]
    for seed in range(seeds):
        optimizer = SFAO(layer_groups(model), memory="directions", capacity=4, seed=seed)
        optimizer.gate.end_task()
        for batches in tasks:
            optimizer.consolidate(model, iter(batches) if stream else batches, loss)
        slots = optimizer.gate.layers[0].memory.slots
        hits.update(slots.arrivals)
        assert slots.tasks == optimizer.gate.layers[1].memory.slots.tasks
    # 2 of the 8 batches of each task, within four and a half standard deviations
    expected, deviation = seeds / 4, (seeds * 3 / 16) ** 0.5
    assert sum(hits.values()) == 4 * seeds
    assert all(abs(hits[arrival] - expected) < 4.5 * deviation for arrival in range(1, 17))


def test_a_loss_that_looks_at_the_weights_is_differentiated_in_full():
    model = network()

    def decayed(outputs, targets):
        return cross_entropy(outputs, targets) + model[0].weight.square().sum()

    optimizer = SFAO(layer_groups(model), memory="directions")
    optimizer.consolidate(model, task(0), decayed)
    x, y = task(0)[3]
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(decayed(model(x), y), list(model[0].parameters()))])
    assert torch.allclose(held(optimizer)["0"][2][3], gradient / gradient.norm(), atol=1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1e-14, 1e14, 1e30])
def test_gradients_of_any_size(scale):
    model = network(dtype=torch.float64)
    one, two = (SFAO(layer_groups(model), memory="directions") for _ in range(2))
    one.consolidate(model, task(0, dtype=torch.float64), loss)
    two.consolidate(model, task(0, dtype=torch.float64), lambda outputs, targets: scale * loss(outputs, targets))
    assert_same(one, two)


@pytest.mark.parametrize("storage", ["dense", "factored"])
def test_gradients_of_zero_take_no_slot(storage):
    """Of every other example only the bias of the last layer has a gradient."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 20, bias=False), nn.ReLU(), nn.Linear(20, 3))
    optimizer = SFAO(layer_groups(model), memory="directions", storage=storage, capacity=6)
    for number, expected in enumerate((3, 3)):
        x, y = task(number)[0]
        x[::2] = 0
        before = len(optimizer.gate.layers[0].memory)
        stored = optimizer.consolidate(model, [(x[i : i + 1], y[i : i + 1]) for i in range(6)], loss)
        first, last = (layer.memory for layer in optimizer.gate.layers)
        assert (len(first), len(last)) == (before + expected, 6) if number == 0 else len(last) == 6
        assert stored >= len(first) - before
        for tasks, arrivals, directions in held(optimizer).values():
            assert len(tasks) == len(arrivals) == len(directions) == len(set(arrivals))
            assert torch.allclose(directions.norm(dim=1), torch.ones(len(directions)), atol=1e-5)
        train(model, optimizer, task(number))
    assert torch.isfinite(weights(model)).all()


@pytest.mark.parametrize("per", ["batch", "example"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_an_error_inside_the_loss_leaves_everything_as_it_was(per, wrapped):
    model = OneByOne(network()) if wrapped else network()
    optimizer = SFAO(layer_groups(model), memory="directions", capacity=4)
    optimizer.consolidate(model, task(0), loss)
    before, state = held(optimizer), optimizer.state_dict()["gate"]["layers"]
    calls = 0

    def failing(outputs, targets):
        nonlocal calls
        calls += 1
        if calls > 1:  # of many units, a vectorised pass calls it once
            raise ArithmeticError("no loss today")
        return loss(outputs, targets)

    with pytest.raises(ArithmeticError, match="no loss today"):
        optimizer.consolidate(model, task(1), failing, per=per)
    for name, (tasks, arrivals, directions) in held(optimizer).items():
        assert (tasks, arrivals) == before[name][:2]
        assert torch.equal(directions, before[name][2])
        memory = optimizer.state_dict()["gate"]["layers"][name]["memory"]
        assert torch.equal(memory["generator"], state[name]["memory"]["generator"])
    assert model.training


def test_a_class_that_is_not_there_is_named_wherever_it_comes():
    model = network()
    x, y = task(0)[0]
    with pytest.raises(ValueError, match="class indices below the 3 outputs, got 3 to 3"):
        SFAO(layer_groups(model), memory="directions").consolidate(
            model, [(x, y.clone().index_fill(0, torch.tensor([11]), 3))], target="logit"
        )


def test_frozen_parameters_have_no_part():
    model = network()
    model[0].bias.requires_grad_(False)
    model[2].weight.requires_grad_(False)
    fast, slow = (SFAO(layer_groups(model), memory="directions", storage="factored") for _ in range(2))
    fast.consolidate(model, task(0), target="logit")
    slow.consolidate(OneByOne(model), task(0), target="logit")
    assert_same(fast, slow)


def test_a_compiled_model_is_consolidated_as_what_it_wraps():
    model = network()
    one, two = (SFAO(layer_groups(model), memory="directions") for _ in range(2))
    one.consolidate(torch.compile(model, backend="eager"), task(0), target="logit")
    two.consolidate(model, task(0), target="logit")
    assert_same(one, two)
