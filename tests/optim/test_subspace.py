"""The memory of input spaces: what it stores, what it takes from gradients and updates, and what it refuses."""

import warnings
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from sfao import SFAO, Decision, Gate, layer_groups
from sfao.optim.reference import soften

LOSS = nn.CrossEntropyLoss()


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 10), nn.ReLU(), nn.Linear(10, 4))


def cnn():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(96, 4))


def task(seed, shape=(12,), classes=4, batches=6, size=16):
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(8, torch.Size(shape).numel(), generator=generator)
    return [
        (
            (torch.randn(size, 8, generator=generator) @ mixing).view(size, *shape),
            torch.randint(0, classes, (size,), generator=generator),
        )
        for _ in range(batches)
    ]


def train(model, optimizer, batches):
    for inputs, targets in batches:
        optimizer.zero_grad()
        LOSS(model(inputs), targets).backward()
        optimizer.step()


def learn(model, optimizer, seeds, shape=(12,)):
    for seed in seeds:
        train(model, optimizer, task(seed, shape))
        optimizer.consolidate(model, task(seed, shape), LOSS)


def second_moment(space):
    axes = space.axes.double()
    return axes.T @ (space.moments[:, None] * axes)


def as_matrix(layer):
    return torch.cat([parameter.grad.reshape(len(layer.parameters[0]), -1) for parameter in layer.parameters], 1)


@pytest.mark.parametrize("model", [mlp, cnn])
@pytest.mark.parametrize("options", [{}, {"keep": 0.3}, {"keep": 0.9, "restore": 1.0}], ids=str)
def test_beside_the_twin(model, options):
    model, shape = model(), (12,) if model is mlp else (3, 8, 8)
    optimizer = SFAO(layer_groups(model), lr=0.05, axes=1000, tolerance=1e6, **options)
    learn(model, optimizer, [1, 2], shape)
    for inputs, targets in task(3, shape):
        optimizer.zero_grad()
        LOSS(model(inputs), targets).backward()
        before = {layer.name: as_matrix(layer).double() for layer in optimizer.gate.layers}
        ways = {layer.name: max(float(layer.travel.path), layer.travel.before) for layer in optimizer.gate.layers}
        optimizer.step()
        for layer in optimizer.gate.layers:
            (space,) = layer.spaces
            share = layer.options["keep"] ** (2**0.5 * (0.5 + 0.8 * ways[layer.name] ** 0.25))
            expected, left = soften(before[layer.name], second_moment(space), share, layer.options["restore"])
            # Softness is found to less than 1 %.
            torch.testing.assert_close(as_matrix(layer).double(), expected, rtol=0, atol=0.01 * float(expected.norm()))
            assert optimizer.kept()[layer.name] == pytest.approx(left, abs=0.01)


def test_an_update_off_all_axes_leaves_old_outputs_as_they_are():
    model = mlp()
    optimizer = SFAO(layer_groups(model), lr=0.1, keep=0.0)
    batches = task(1)
    optimizer.consolidate(model, batches)
    inputs = torch.cat([batch for batch, _ in batches])
    before = model[0](inputs)
    train(model, optimizer, task(2))
    torch.testing.assert_close(model[0](inputs), before, atol=1e-4, rtol=0)
    assert optimizer.drifts["0"] < 1e-4


def consolidate_few(bound, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 6, bias=False))
    optimizer = SFAO(layer_groups(model), lr=0.1, **options)
    with bound:
        optimizer.consolidate(model, [(torch.rand(5, 40), torch.zeros(5, dtype=torch.long))])
    return model, optimizer


def test_five_inputs_have_five_axes_and_a_projection_takes_no_others():
    model, optimizer = consolidate_few(nullcontext(), keep=0.0, restore=1.0)
    (space,) = optimizer.gate.layers[0].spaces
    assert len(space.axes) == 5
    off = torch.randn(6, 40) @ (torch.eye(40) - space.axes.T @ space.axes)
    model[0].weight.grad = off.clone()
    optimizer.step()
    torch.testing.assert_close(model[0].weight.grad, off, atol=1e-5, rtol=0)


def test_axes_do_not_depend_on_the_precision_of_the_model():
    before = torch.get_float32_matmul_precision()
    spaces = []
    for bound in (nullcontext(), torch.autocast("cpu", dtype=torch.bfloat16)):
        spaces += consolidate_few(bound)[1].gate.layers[0].spaces
    torch.set_float32_matmul_precision("medium")
    try:
        spaces += consolidate_few(nullcontext())[1].gate.layers[0].spaces
    finally:
        torch.set_float32_matmul_precision(before)
    for space in spaces[1:]:
        torch.testing.assert_close(space.moments, spaces[0].moments, rtol=1e-5, atol=0)
        torch.testing.assert_close(space.probes, spaces[0].probes, rtol=1e-4, atol=1e-5)


def test_until_something_is_remembered_it_is_sgd_and_keep_1_stays_so():
    one, two = mlp(), mlp()
    optimizer = SFAO(layer_groups(one), lr=0.1, momentum=0.9, keep=1.0)
    sgd = torch.optim.SGD(two.parameters(), lr=0.1, momentum=0.9)
    train(one, optimizer, task(1))
    train(two, sgd, task(1))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    optimizer.consolidate(one, task(1))
    inputs, targets = task(2)[0]
    LOSS(one(inputs), targets).backward()
    gradients = [parameter.grad.clone() for parameter in one.parameters()]
    optimizer.step()
    assert set(optimizer.last_decisions.values()) == {Decision.ACCEPT}
    assert all(torch.equal(p.grad, gradient) for p, gradient in zip(one.parameters(), gradients, strict=True))


def test_a_complete_basis_leaves_nothing_and_says_discard():
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = SFAO(layer_groups(model), lr=0.1, keep=0.0)
    optimizer.consolidate(model, [(torch.randn(50, 3), torch.zeros(50))])
    model(torch.randn(5, 3)).square().sum().backward()
    optimizer.step()
    assert not model.weight.grad.any()
    assert not model.bias.grad.any()
    assert set(optimizer.last_decisions.values()) == {Decision.DISCARD}
    assert next(iter(optimizer.counts.values())) == {"accept": 0, "project": 0, "discard": 1, "zero": 0}


def test_counts_and_looks():
    model = mlp()
    optimizer = SFAO(layer_groups(model), lr=0.05)
    learn(model, optimizer, [1, 2])
    assert optimizer.counts["0"] == {"accept": 6, "project": 6, "discard": 0, "zero": 0}
    assert set(optimizer.kept()) == set(optimizer.drifts) == {"0", "2"}
    assert all(0 < drift < 1 for drift in optimizer.drifts.values())
    assert optimizer.risk() > 0
    assert optimizer.memory_bytes == sum(space.bytes for layer in optimizer.gate.layers for space in layer.spaces) > 0


def test_drift_is_that_of_the_outputs_for_past_inputs():
    model = nn.Linear(20, 30)
    optimizer = SFAO(layer_groups(model), lr=1.0)
    inputs = torch.randn(600, 20) * torch.linspace(0.1, 2, 20)
    optimizer.consolidate(model, [(inputs, torch.zeros(600))])
    before = model(inputs).detach()
    with torch.no_grad():
        model.weight += 0.05 * torch.randn(30, 20)
    model(inputs[:8]).square().sum().backward()
    moved = model(inputs).detach() - before
    optimizer.step()
    assert optimizer.drifts[next(iter(optimizer.drifts))] == pytest.approx(
        float(moved.norm() / before.norm()), rel=0.25
    )


def test_the_layer_that_drifts_keeps_less():
    model = mlp()
    optimizer = SFAO(layer_groups(model), lr=0.05, tolerance=0.05)
    learn(model, optimizer, [1])
    shares = []
    for _ in range(20):
        train(model, optimizer, task(2)[:1])
        shares.append(optimizer.kept()["2"])
    assert optimizer.drifts["2"] > 0.05
    assert shares[-1] < 0.6 * 0.9 < shares[0]


def test_inputs_are_caught_wherever_a_weight_is_used():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(12, 8)
            self.weight = nn.Parameter(torch.randn(8, 8) * 0.1)
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
            self.norm = nn.LayerNorm(8)
            self.last = nn.Linear(8, 4)

        def forward(self, inputs):
            hidden = torch.relu(self.first(inputs))
            hidden = nn.functional.linear(hidden, self.weight)
            hidden = hidden + self.attention(hidden[:, None], hidden[:, None], hidden[:, None])[0][:, 0]
            return self.last(self.norm(hidden))

    torch.manual_seed(0)
    model = Odd()
    optimizer = SFAO(layer_groups(model), lr=0.05)
    train(model, optimizer, task(1))
    with pytest.warns(RuntimeWarning, match=r"layers without an input space remember nothing.*'norm' \(layer_norm\)"):
        optimizer.consolidate(model, task(1))
    held = {layer.name for layer in optimizer.gate.layers if layer.remembers_inputs}
    assert {"first", "last", "(root)"} <= held
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once is enough
        optimizer.consolidate(model, task(1))


@pytest.mark.parametrize(
    "convolution",
    [
        nn.Conv2d(4, 6, 3, padding=1, groups=2),
        nn.Conv2d(4, 6, 3, stride=2, dilation=2, padding="valid", bias=False),
        nn.Conv2d(4, 6, (3, 1), padding="same", padding_mode="reflect"),
    ],
    ids=str,
)
def test_gradients_of_a_convolution_lie_in_its_input_space(convolution):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(3, 4, 9, 9, generator=generator)
    optimizer = SFAO([{"params": list(convolution.parameters()), "name": "c"}], lr=0.1, keep=0.0, axes=1000)
    optimizer.consolidate(convolution, [(inputs, torch.zeros(3))])
    convolution(inputs).square().sum().backward()
    size = convolution.weight.grad.norm()
    optimizer.step()
    assert float(convolution.weight.grad.norm() / size) < 1e-3


def test_channels_last_makes_no_difference():
    models = [cnn(), cnn().to(memory_format=torch.channels_last)]
    for model in models:
        optimizer = SFAO(layer_groups(model), lr=0.05)
        learn(model, optimizer, [1, 2], (3, 8, 8))
        train(model, optimizer, task(3, (3, 8, 8)))
        state = optimizer.state_dict()
        optimizer.load_state_dict(state)
        train(model, optimizer, task(4, (3, 8, 8)))
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("make", [torch.optim.AdamW, torch.optim.Adam, torch.optim.RMSprop, torch.optim.SGD])
def test_the_update_of_any_optimizer_is_softened(make):
    model = mlp()
    optimizer = make(model.parameters(), lr=0.01)
    gate = Gate(layer_groups(model), keep=0.0).attach(optimizer)
    batches = task(1)
    train(model, optimizer, batches)
    gate.consolidate(model, batches)
    inputs = torch.cat([batch for batch, _ in batches])
    before = model[0](inputs)
    train(model, optimizer, task(2))
    torch.testing.assert_close(model[0](inputs), before, atol=1e-4, rtol=0)
    assert gate.counts["0"] == {"accept": 6, "project": 6, "discard": 0, "zero": 0}
    gate.detach()
    train(model, optimizer, task(2))
    assert not torch.allclose(model[0](inputs), before, atol=1e-3)


def test_both_memories_together():
    model = mlp()
    optimizer = SFAO(layer_groups(model), lr=0.05, memory="both", accept_above=1.0, discard_below=-1.0, capacity=5)
    learn(model, optimizer, [1, 2])
    for layer in optimizer.gate.layers:
        assert len(layer.memory) == 5
        assert layer.remembers_inputs
    train(model, optimizer, task(3)[:1])
    for layer in optimizer.gate.layers:
        products = layer.memory.products
        matrices = [parameter.grad.reshape(len(layer.parameters[0]), -1) for parameter in layer.parameters]
        assert float(products.dots(matrices).abs().max()) < 1e-5
    generator = (batch for batch in task(4))
    optimizer.consolidate(model, generator, LOSS)  # walked through twice


@pytest.mark.parametrize("scale", [1e-20, 1e15])
def test_gradients_of_any_size(scale):
    model = mlp()
    optimizer = SFAO(layer_groups(model), lr=0.0)
    learn(model, optimizer, [1])
    inputs, targets = task(2)[0]
    outcomes = []
    for factor in (1.0, scale):
        optimizer.zero_grad()
        (LOSS(model(inputs), targets) * factor).backward()
        optimizer.step()
        outcomes.append(model[0].weight.grad / factor)
    torch.testing.assert_close(*outcomes, rtol=1e-3, atol=1e-7)


def test_a_head_that_was_not_used_is_free():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.heads, self.head = nn.Linear(12, 8), nn.ModuleList([nn.Linear(8, 4) for _ in range(2)]), 0

        def forward(self, inputs):
            return self.heads[self.head](torch.relu(self.body(inputs)))

    torch.manual_seed(0)
    model = Heads()
    optimizer = SFAO(layer_groups(model), lr=0.1)
    train(model, optimizer, task(1))
    optimizer.consolidate(model, task(1))
    model.head = 1
    train(model, optimizer, task(2))
    assert optimizer.last_decisions == {"body": Decision.PROJECT, "heads.1": Decision.ACCEPT}
