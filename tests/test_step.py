"""Steps of the gate: what SFAO must reduce to, what the paper promises, and gradients of all kinds."""

import copy

import pytest
import torch
from torch import nn

from sfao.decision import Decision, NonFiniteGradient
from sfao.optimizer import SFAO
from tests.problem import PROJECT, loss, make_trained, network, task, train, weights

pytestmark = pytest.mark.filterwarnings("ignore:the directions of these layers span:RuntimeWarning")


def make_one(gradient, remembered=((1.0, 0.0, 0.0),), **options):
    """One parameter of three entries that remembers directions, after a step."""
    weight = nn.Parameter(torch.zeros(3))
    optimizer = SFAO([{"params": [weight], "name": "w"}], lr=1.0, momentum=0.0, **options)
    for direction in remembered:
        weight.grad = torch.tensor(direction)
        optimizer.remember()
    weight.grad = torch.tensor(gradient)
    optimizer.step()
    return optimizer


# -- Special cases ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9, "momentum_form": "heavy_ball"}], ids=str)
def test_always_accepting_is_sgd(options):
    model, optimizer = make_trained(1, accept_above=-1, **options)
    plain = copy.deepcopy(model)
    train(model, optimizer, task(5), epochs=3)
    train(plain, torch.optim.SGD(plain.parameters(), lr=0.1, momentum=options.get("momentum", 0)), task(5), epochs=3)
    assert torch.equal(weights(model), weights(plain))


@pytest.mark.parametrize("storage", ["dense", "factored"])
def test_always_projecting_is_ogd(storage):
    model, optimizer = make_trained(1, **PROJECT, storage=storage)
    before = optimizer.counts
    train(model, optimizer, task(5))
    for name, counts in optimizer.counts.items():
        assert counts == {**before[name], "project": before[name]["project"] + 6}
    assert optimizer.risk() < 1e-6


@pytest.mark.parametrize("storage", ["dense", "factored"])
def test_first_order_safety(storage):
    """The proposition: after a projected step the old outputs change by O(lr^2). Halve lr, see a quarter.

    One single-example logit per direction, so that rank-1 factors hold them exactly.
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 4)).double()
    old_inputs, old_targets = torch.randn(6, 20).double(), torch.randint(0, 4, (6,))
    new_inputs, new_targets = torch.randn(32, 20).double() + 1, torch.randint(0, 4, (32,))

    def measure(lr, **thresholds):
        twin = copy.deepcopy(model)
        optimizer = SFAO(twin, lr=lr, momentum=0.0, storage=storage, **thresholds)
        optimizer.consolidate([(old_inputs, old_targets)], target="logit")
        before = twin(old_inputs).detach().gather(1, old_targets[:, None])
        loss(twin(new_inputs), new_targets).backward()
        optimizer.step()
        return float((twin(old_inputs).detach().gather(1, old_targets[:, None]) - before).abs().max())

    projected = [measure(lr, **PROJECT) for lr in (0.05, 0.025)]
    accepted = [measure(lr, accept_above=-1) for lr in (0.05, 0.025)]
    assert projected[1] / projected[0] == pytest.approx(0.25, abs=0.02)
    assert accepted[1] / accepted[0] == pytest.approx(0.5, abs=0.05)


def test_strict_accept_removes_the_risk_of_accepting():
    remembered = ((1.0, 0.0, 0.0), (-0.6, 0.8, 0.0))
    loose = make_one([1.0, 0.0, 0.1], remembered, accept_above=0.5)
    assert loose.risk() == pytest.approx(0.6)
    assert loose.last_decisions == {"w": Decision.ACCEPT}
    strict = make_one([1.0, 0.0, 0.1], remembered, accept_above=0.5, strict=True)
    assert strict.risk() < 1e-6
    assert strict.last_decisions == {"w": Decision.PROJECT}


def test_the_seed_decides_the_sample_and_the_global_generator_is_never_used():
    def run(seed):
        model, _ = make_trained(3, lr=0.3, samples=1, accept_above=0.2, discard_below=-0.1, seed=seed, capacity=8)
        return weights(model)

    assert torch.equal(run(0), run(0))
    assert not torch.equal(run(0), run(1))
    state = torch.get_rng_state()
    model, optimizer = make_trained(0, model=network(), samples=2, capacity=3, storage="factored")
    torch.set_rng_state(state)
    for _ in range(2):
        train(model, optimizer, task(0))
        optimizer.consolidate(task(0), loss)
        optimizer.consolidate(task(0), target="logit")
    assert torch.equal(state, torch.get_rng_state())


# -- Gradients of all kinds --------------------------------------------------------------------------------


@pytest.mark.parametrize("projection", ["span", "cone", "sequential"])
@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1e-15, 1.0, 1e15, 1e30])
def test_decisions_and_updates_scale_with_the_gradient(scale, projection):
    model, optimizer = make_trained(1, lr=0.0, accept_above=0.5, discard_below=-0.5, samples=200, projection=projection)
    generator = torch.Generator().manual_seed(3)
    base = [torch.randn(p.shape, generator=generator) for p in model.parameters()]

    def step(factor):
        for parameter, gradient in zip(model.parameters(), base, strict=True):
            parameter.grad = (gradient.double() * factor).float()
        optimizer.step()
        return optimizer.last_decisions, [p.grad.double() / factor for p in model.parameters()], optimizer.kept()

    decisions, updates, kept = step(1.0)
    scaled_decisions, scaled_updates, scaled_kept = step(scale)
    assert Decision.PROJECT in decisions.values()
    assert scaled_decisions == decisions
    assert scaled_kept == pytest.approx(kept, rel=1e-3)
    resolution = 1e-45 / scale  # the spacing of subnormal numbers
    for update, scaled in zip(updates, scaled_updates, strict=True):
        assert torch.allclose(update, scaled, rtol=1e-4, atol=1e-5 + 4 * resolution)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_projected_updates_are_orthogonal_to_the_memory(dtype):
    model = network(dtype=dtype)
    optimizer = SFAO(model, lr=0.0, **PROJECT)
    optimizer.consolidate(task(0, dtype=dtype), loss)
    inputs, targets = task(5, dtype=dtype)[0]
    loss(model(inputs), targets).backward()
    optimizer.step()
    norm = max(float(layer.weight.grad.norm()) for layer in (model[0], model[2]))
    assert optimizer.risk() <= {torch.bfloat16: 2e-2, torch.float16: 2e-3}.get(dtype, 1e-6) * max(norm, 1e-3)


def test_a_zero_gradient_is_counted_as_zero_and_decides_nothing():
    model, optimizer = make_trained(1)
    before, moved = optimizer.counts, weights(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert torch.equal(weights(model), moved)
    assert optimizer.last_decisions == optimizer.last_cosines == optimizer.kept() == {}
    for name, counts in optimizer.counts.items():
        assert counts == {**before[name], "zero": 1}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("action", ["step", "remember"])
def test_a_gradient_that_is_not_finite_is_named_and_changes_nothing(value, action):
    model, optimizer = make_trained(**PROJECT, momentum=0.9)
    train(model, optimizer, task(2)[:1])
    optimizer.zero_grad()
    loss(model(task(3)[0][0]), task(3)[0][1]).backward()
    model[2].bias.grad[1] = value  # the last layer: those before must not have moved either
    before, state = weights(model), optimizer.state_dict()["sfao"]["checksum"]
    gradient = model[0].weight.grad.clone()
    with pytest.raises(NonFiniteGradient, match=r"the gradient of layer '2' must be finite, got (nan|inf)"):
        getattr(optimizer, action)()
    assert torch.equal(weights(model), before)
    assert torch.equal(model[0].weight.grad, gradient)
    assert optimizer.state_dict()["sfao"]["checksum"] == state


def test_sparse_gradients_are_refused():
    model = nn.Embedding(10, 3, sparse=True)
    optimizer = SFAO(model)
    model(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(ValueError, match=r"the gradient of layer '\(root\)' must be dense, got a sparse tensor"):
        optimizer.step()


def test_channels_last_gradients_and_back():
    def run(formats):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Unflatten(1, (3, 2, 2)), nn.Conv2d(3, 4, 2), nn.Flatten(), nn.Linear(4, 3))
        optimizer = SFAO(model, lr=0.1, **PROJECT)
        for number, memory_format in enumerate(formats):
            model.to(memory_format=memory_format)
            for inputs, targets in task(number):
                optimizer.zero_grad()
                loss(model(inputs), targets).backward()
                optimizer.step()
            optimizer.consolidate(task(number), loss)
        return weights(model)

    plain = run([torch.contiguous_format] * 3)
    assert torch.allclose(run([torch.channels_last] * 3), plain, atol=1e-5)
    assert torch.allclose(run([torch.channels_last, torch.contiguous_format, torch.channels_last]), plain, atol=1e-5)


def test_reduced_precision_of_the_model_does_not_reach_the_gate():
    def run(precision, autocast):
        model, optimizer = make_trained(1, **PROJECT)
        loss(model(task(3)[0][0]), task(3)[0][1]).backward()
        torch.set_float32_matmul_precision(precision)
        try:
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                optimizer.step()
            assert torch.get_float32_matmul_precision() == precision
        finally:
            torch.set_float32_matmul_precision("highest")
        return weights(model)

    assert torch.equal(run("highest", False), run("medium", True))


def test_a_default_dtype_of_float64():
    torch.set_default_dtype(torch.float64)
    try:
        model = nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 3))
        batches = [(x.double(), y) for x, y in task(0)]
        optimizer = SFAO(model, **PROJECT)
        optimizer.consolidate(batches, loss)
        optimizer.consolidate(batches, target="logit")
        train(model, optimizer, batches)
        assert optimizer.risk() < 1e-6
        SFAO(model).load_state_dict(optimizer.state_dict())
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_compiled_step():
    model, optimizer = make_trained(1, **PROJECT)
    plain, plain_optimizer = copy.deepcopy((model, optimizer))
    step = torch.compile(optimizer.step, backend="eager")
    for inputs, targets in task(1):
        for one, take in ((model, step), (plain, plain_optimizer.step)):
            one.zero_grad()
            loss(one(inputs), targets).backward()
            take()
    assert torch.equal(weights(model), weights(plain))


# -- Telemetry -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gradient", "options", "decision", "cosine", "kept"),
    [
        ([3.0, 4.0, 0.0], {"accept_above": 0.9}, Decision.PROJECT, 0.6, 0.8),
        ([3.0, 4.0, 0.0], {"accept_above": 0.9, "projection": "sequential"}, Decision.PROJECT, 0.6, 0.8),
        ([3.0, 4.0, 0.0], {"accept_above": 0.5}, Decision.ACCEPT, 0.6, 1.0),
        ([-3.0, 4.0, 0.0], {"accept_above": 0.5, "discard_below": -0.5}, Decision.DISCARD, -0.6, 0.0),
        ([-3.0, 4.0, 0.0], {"accept_above": 0.9, "cosine": "absolute"}, Decision.PROJECT, 0.6, 0.8),
    ],
)
def test_what_a_step_tells(gradient, options, decision, cosine, kept):
    optimizer = make_one(gradient, **options)
    assert optimizer.last_decisions == {"w": decision}
    assert optimizer.last_cosines == {"w": pytest.approx(cosine)}
    assert optimizer.kept() == {"w": pytest.approx(kept)}
    values = optimizer.telemetry()
    assert all(type(value) is float for value in values.values())
    assert values["kept"] == values["layers/w/kept"] == pytest.approx(kept)
    assert values["layers/w/cosine"] == pytest.approx(cosine)
    assert values[str(decision)] == values[f"layers/w/{decision}"] == 1
    assert values["memory_bytes"] == optimizer.memory_bytes == 12


def test_the_sampled_risk_is_over_the_directions_of_the_last_step():
    remembered = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-0.6, 0.0, 0.8]]
    risks = set()
    for seed in range(20):
        optimizer = make_one([2.0, -1.0, 0.0], remembered, accept_above=-1, samples=1, seed=seed)
        (sampled,) = optimizer.gate.last.samples["w"].tolist()
        expected = max(0.0, -sum(a * b for a, b in zip(remembered[sampled], [2.0, -1.0, 0.0], strict=True)))
        assert optimizer.risk(sampled=True) == pytest.approx(expected)
        assert optimizer.risk() == pytest.approx(1.2)
        risks.add(round(expected, 3))
    assert risks == {0.0, 1.0, 1.2}


def test_where_the_memory_spans_a_layer_risk_and_kept_are_zero():
    remembered = torch.eye(3).tolist()
    optimizer = make_one([3.0, 4.0, 1.0], remembered, **PROJECT)
    assert optimizer.kept() == {"w": 0.0}
    assert optimizer.risk() == optimizer.risk(sampled=True) == 0.0
    assert optimizer.telemetry()["kept"] == 0.0


def test_risk_needs_an_update():
    _, optimizer = make_trained(1)
    optimizer.zero_grad()
    with pytest.raises(RuntimeError, match=r"call it before zero_grad"):
        optimizer.risk()


def test_what_is_left_inside_the_span_is_measured():
    """|g|^2 - |u|^2 would be rounding there."""
    model = nn.Linear(3, 3)
    optimizer = SFAO(model, **PROJECT)
    batches = [(torch.randn(1, 3), torch.tensor([number % 3])) for number in range(12)]
    optimizer.consolidate(batches, loss)
    loss(model(batches[0][0]), batches[0][1]).backward()
    norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
    optimizer.step()
    left = torch.cat([p.grad.flatten() for p in model.parameters()]).norm() / norm
    assert optimizer.kept()["(root)"] == pytest.approx(float(left), rel=1e-3, abs=1e-12)
    assert float(left) < 1e-5
