"""What SFAO must reduce to, and what the paper's proposition promises."""

import copy

import pytest
import torch
from torch import nn

from sfao import SFAO, Decision, layer_groups
from tests.optim.problem import loss, network, task, train, trained, weights


def twin_of_sgd(model, remembered: bool, sgd: dict, **options) -> None:
    """Train on a second task with SFAO and with SGD: the weights must be equal bit for bit."""
    optimizer = SFAO(layer_groups(model), lr=0.1, **options)
    if remembered:
        trained(model, optimizer, tasks=1)
        assert optimizer.memory_bytes > 0
    plain = copy.deepcopy(model)
    train(model, optimizer, task(5), epochs=5)
    train(plain, torch.optim.SGD(plain.parameters(), lr=0.1, **sgd), task(5), epochs=5)
    assert torch.equal(weights(model), weights(plain))


def test_sgd_with_an_empty_memory():
    twin_of_sgd(network(), remembered=False, sgd={})


def test_sgd_when_everything_is_accepted():
    twin_of_sgd(network(), remembered=True, sgd={}, accept_above=-1, discard_below=-1)


def test_sgd_with_torchs_momentum():
    twin_of_sgd(
        network(),
        remembered=True,
        sgd={"momentum": 0.9},
        momentum=0.9,
        momentum_form="heavy_ball",
        accept_above=-1,
        discard_below=-1,
    )


def test_ogd_when_everything_is_projected():
    model = network()
    optimizer = trained(model, SFAO(layer_groups(model), lr=0.1, accept_above=1, discard_below=-1), tasks=1)
    before = optimizer.counts
    train(model, optimizer, task(5))
    for name, counts in optimizer.counts.items():
        assert counts["project"] == before[name]["project"] + 6
        assert counts["discard"] == 0
        assert counts["accept"] == before[name]["accept"]
    assert optimizer.risk() < 1e-6


def test_hard_reject():
    model = network()
    optimizer = trained(model, SFAO(layer_groups(model), lr=0.1, accept_above=1, discard_below=1), tasks=1)
    before = weights(model)
    train(model, optimizer, task(5))
    assert torch.equal(weights(model), before)
    assert set(optimizer.last_decisions.values()) == {Decision.DISCARD}


@pytest.mark.parametrize("storage", ["dense", "factored"])
def test_first_order_safety(storage):
    """The proposition: after a projected step the loss of the old task changes by O(lr^2). Halve lr, see a quarter.

    An unprojected step changes it by O(lr): halve lr, see a half. One single-example logit target a direction,
    so that rank-1 factors hold them exactly.
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 4)).double()
    old_inputs, old_targets = torch.randn(6, 20).double(), torch.randint(0, 4, (6,))
    new_inputs, new_targets = torch.randn(32, 20).double() + 1, torch.randint(0, 4, (32,))

    def old_outputs() -> torch.Tensor:
        with torch.no_grad():
            return model(old_inputs).gather(1, old_targets[:, None])[:, 0]

    def change(lr: float, **thresholds: float) -> float:
        start = copy.deepcopy(model.state_dict())
        optimizer = SFAO(layer_groups(model), lr=lr, storage=storage, **thresholds)
        optimizer.consolidate(model, [(old_inputs, old_targets)], target="logit")
        before = old_outputs()
        loss(model(new_inputs), new_targets).backward()
        optimizer.step()
        moved = float((old_outputs() - before).abs().max())
        model.zero_grad()
        model.load_state_dict(start)
        return moved

    rates = [0.4, 0.2, 0.1, 0.05, 0.025]
    projected = [change(lr, accept_above=1, discard_below=-1) for lr in rates]
    accepted = [change(lr, accept_above=-1, discard_below=-1) for lr in rates]
    assert projected[-1] / projected[-2] == pytest.approx(0.25, abs=0.02)
    assert projected[-2] / projected[-3] == pytest.approx(0.25, abs=0.04)
    assert accepted[-1] / accepted[-2] == pytest.approx(0.5, abs=0.05)


def test_strict_accept_removes_the_risk_of_accepting():
    """Accepting on the largest cosine can still move against another direction; strict accept cannot."""
    weight = nn.Parameter(torch.zeros(3))
    along, against = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([-0.6, 0.8, 0.0])

    def risk(strict: bool) -> tuple[float, Decision]:
        optimizer = SFAO([weight], accept_above=0.5, strict=strict)
        for direction in (along, against):
            weight.grad = direction.clone()
            optimizer.remember()
        weight.grad = torch.tensor([1.0, 0.0, 0.1])
        optimizer.step()
        return optimizer.risk(), optimizer.last_decisions["layer0"]

    assert risk(strict=False) == (pytest.approx(0.6), Decision.ACCEPT)
    strict_risk, decision = risk(strict=True)
    assert strict_risk < 1e-6
    assert decision is Decision.PROJECT


@pytest.mark.parametrize("scale", [1e-42, 1e-30, 1e-15, 1.0, 1e15, 1e30])
def test_decisions_and_updates_scale_with_the_gradient(scale):
    model = network()
    optimizer = SFAO(layer_groups(model), lr=0.0, accept_above=0.5, discard_below=-0.5, samples=200)
    trained(model, optimizer, tasks=1)
    generator = torch.Generator().manual_seed(3)
    base = [torch.randn(p.shape, generator=generator) for p in model.parameters()]

    def gated(factor: float) -> tuple[dict, list]:
        for parameter, gradient in zip(model.parameters(), base, strict=True):
            parameter.grad = (gradient.double() * factor).float()
        optimizer.step()
        return optimizer.last_decisions, [p.grad.double() / factor for p in model.parameters()]

    decisions, updates = gated(1.0)
    scaled_decisions, scaled_updates = gated(scale)
    assert Decision.PROJECT in decisions.values()
    assert scaled_decisions == decisions
    resolution = 1e-45 / scale  # what a subnormal number can still tell apart
    for update, scaled in zip(updates, scaled_updates, strict=True):
        assert torch.allclose(update, scaled, rtol=1e-4, atol=1e-5 + 4 * resolution)


def test_a_zero_gradient_is_counted_as_zero_and_decides_nothing():
    model = network()
    optimizer = trained(model, SFAO(layer_groups(model), lr=0.1), tasks=1)
    before, moved = optimizer.counts, weights(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert torch.equal(weights(model), moved)
    assert optimizer.last_decisions == {}
    for name, counts in optimizer.counts.items():
        assert counts == {**before[name], "zero": 1}


def test_a_decision_never_changes_the_memory():
    model = network()
    optimizer = trained(model, SFAO(layer_groups(model), lr=0.1, accept_above=0.3, discard_below=-0.1), tasks=1)
    held = optimizer.state_dict()["gate"]["layers"]["0"]["memory"]["blocks"][0]["tensors"][0].clone()
    train(model, optimizer, task(4), epochs=3)
    after = optimizer.state_dict()["gate"]["layers"]["0"]["memory"]["blocks"][0]["tensors"][0]
    assert torch.equal(held, after)


def test_thresholds_per_group_and_changed_in_flight():
    model = network()
    groups = layer_groups(model)
    groups[0]["accept_above"], groups[0]["discard_below"] = -1, -1
    groups[1]["accept_above"], groups[1]["discard_below"] = 1, 1
    optimizer = trained(model, SFAO(groups, lr=0.1), tasks=1)
    train(model, optimizer, task(1))
    assert optimizer.last_decisions == {"0": Decision.ACCEPT, "2": Decision.DISCARD}
    optimizer.param_groups[1].update(accept_above=1, discard_below=-1)
    train(model, optimizer, task(1))
    assert optimizer.last_decisions == {"0": Decision.ACCEPT, "2": Decision.PROJECT}


def test_momentum_starts_anew_at_a_task_boundary():
    model = network()
    optimizer = SFAO(layer_groups(model), lr=0.1, momentum=0.9)
    train(model, optimizer, task(0))
    assert all("momentum_buffer" in state for state in optimizer.state.values())
    optimizer.end_task()
    before = weights(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert torch.equal(weights(model), before)


def test_the_seed_decides_the_sample():
    def run(seed: int) -> torch.Tensor:
        model = network()
        optimizer = SFAO(layer_groups(model), lr=0.3, samples=1, accept_above=0.2, discard_below=-0.1, seed=seed)
        trained(model, optimizer, tasks=3)
        return weights(model)

    assert torch.equal(run(0), run(0))
    assert not torch.equal(run(0), run(1))


def test_the_global_generator_is_never_used():
    model = network()
    optimizer = SFAO(layer_groups(model), lr=0.1, samples=2, capacity=3, storage="factored")
    state = torch.get_rng_state()
    batches = task(0)
    train(model, optimizer, batches)
    for _ in range(2):
        optimizer.consolidate(model, batches, loss)
        optimizer.consolidate(model, batches, target="logit")
        train(model, optimizer, batches)
    assert torch.equal(state, torch.get_rng_state())
