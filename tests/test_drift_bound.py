"""DriftBound: the drift of every layer stays within its allowance, and bad input changes nothing."""

import math
from copy import deepcopy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn, optim
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from sfao.drift_bound import DEFAULTS, DriftBound
from tests.bounding import (
    Batches,
    consolidated,
    copy_weights,
    count_examples,
    drift_of_outputs,
    drifts,
    make_batches,
    make_bound,
    make_cnn,
    make_mlp,
    record_calls,
    same,
    train,
)
from tests.reference import drift_bound as twin
from tests.test_bounded_layers import CONVOLUTIONS, make_convolution

BATCHES, OTHERS = make_batches(8, 5), make_batches(8, 5, seed=1)


class Head(nn.Sequential):
    """A layer, and a Linear layer on the mean of its outputs."""

    def __init__(self, layer: nn.Module, channels: int, dim: int = 1) -> None:
        super().__init__(layer, nn.Linear(channels, 4))
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        x = self[0](x).movedim(self.dim, -1)
        return self[1](x.flatten(1, -2).mean(1) if x.ndim > 2 else x)


def with_labels(x: Tensor) -> Batches:
    return [(x, torch.randint(4, (len(x),)))]


MODELS: list[tuple[nn.Module, Tensor]] = [
    *[
        (Head(layer, layer.weight.shape[0]), x)  # type: ignore[arg-type, index]
        for layer, x in (make_convolution(kind, options) for kind, options in CONVOLUTIONS)
    ],
    (Head(nn.Linear(5, 6), 6), torch.randn(9, 5)),
    (Head(nn.Linear(5, 6, bias=False), 6, -1), torch.randn(9, 3, 5)),
    (Head(nn.BatchNorm1d(5), 5), torch.randn(9, 5)),
    (Head(nn.BatchNorm2d(5), 5), torch.randn(9, 5, 2, 3)),
    (Head(nn.BatchNorm3d(5), 5), torch.randn(9, 5, 2, 3, 2)),
    (Head(nn.LayerNorm(5), 5, -1), torch.randn(9, 3, 5)),
    (Head(nn.GroupNorm(2, 6), 6), torch.randn(9, 6, 4)),
    (Head(nn.Embedding(7, 5), 5, -1), torch.randint(7, (9, 3))),
]


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize(("model", "x"), MODELS)
def test_the_outputs_of_every_layer_stay_within_the_tolerance(model: nn.Module, x: Tensor) -> None:
    """Over two tasks, from the true outputs: E |(W - W*) x|^2 <= tolerance^2 / t E |W* x|^2."""
    model = deepcopy(model)
    bound, optimizer = make_bound(model, lr=1.0, examples=len(x), clip=None)
    calls: list[dict[str, list[Tensor]]] = []
    for task in range(1, 3):
        batches = with_labels(x * task if x.is_floating_point() else (x + task) % 7)
        bound.consolidate(batches, cross_entropy)
        calls.append(record_calls(model, batches))
        anchor = deepcopy(model)
        train(model, optimizer, with_labels(torch.randn_like(x) if x.is_floating_point() else x.flip(0)), 3)
        outside = copy_weights(model)
        bound.apply()
        reached = 0.0
        for name, layer in (("0", model[0]), ("1", model[1])):  # type: ignore[index]
            inputs = [own[name][0] for own in calls]
            reached = max(reached, drift_of_outputs(layer, anchor.get_submodule(name), inputs) * task**0.5)
        assert not same(outside, copy_weights(model)), "the steps were too small for this test"
        assert reached == pytest.approx(0.1, rel=2e-3)
        assert bound.telemetry()["drift"] == pytest.approx(1.0, rel=1e-3)


@settings(max_examples=15)
@given(st.integers(0, 99), st.sampled_from([0.02, 0.1, 1.0]), st.sampled_from([0.01, 0.3, 3.0]))
def test_the_nearest_weights_are_the_twins(seed: int, tolerance: float, lr: float) -> None:
    """Three tasks next to the twin: inside the set nothing changes, outside the nearest point is taken."""
    torch.manual_seed(seed)
    model = make_mlp()
    bound, optimizer = make_bound(model, lr=lr, every=1000, examples=24, tolerance=tolerance)
    rows: dict[str, list[Tensor]] = {"0": [], "2": []}
    for task in range(3):
        batches = make_batches(8, 5, seed=seed + task, shift=task - 1.0)
        bound.consolidate(batches, cross_entropy)
        for name, (x,) in record_calls(model, batches).items():
            rows[name].append(torch.cat([x, torch.ones(len(x), 1)], 1))
        anchor = deepcopy(model)
        for _ in range(2):
            train(model, optimizer, make_batches(8, 5, seed=seed + 50, shift=1.0), 2)
            before = {name: matrix_of(model.get_submodule(name)) for name in rows}
            bound.apply()
            for name, inputs in rows.items():
                expected = twin.project(before[name], matrix_of(anchor.get_submodule(name)), inputs, tolerance)
                found = matrix_of(model.get_submodule(name))
                torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=2e-4)
                if torch.equal(expected, before[name].double()):
                    assert torch.equal(found, before[name]), "weights inside the set changed"


def matrix_of(layer: Any) -> Tensor:
    return torch.cat([layer.weight, layer.bias[:, None]], 1).detach()


@pytest.mark.parametrize(("energy", "slack"), [(1.0, 1.05), (DEFAULTS["energy"], 1.1)])
def test_drawn_rows_and_left_out_axes_change_little(energy: float, slack: float) -> None:
    """Also for convolutions with many more patches than are drawn."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten()
    ).append(nn.Linear(256, 4))
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    bound = DriftBound(model, energy=energy).attach(optimizer)
    past, others = (
        [(nn.functional.interpolate(x, size=28, mode="bilinear").relu(), y) for x, y in batches]
        for batches in (make_batches(100, 1, 7, 7), make_batches(32, 1, 7, 7, seed=1, count=6))
    )
    train(model, optimizer, past, 6)
    bound.consolidate(past, cross_entropy)
    calls, anchor = record_calls(model, past), deepcopy(model)
    train(model, optimizer, others, 100)
    bound.apply()
    found = dict(drifts(model, anchor, calls))
    assert len(found) == 3
    assert all(0.09 < drift < 0.1 * slack for drift in found.values()), found


def test_each_use_of_a_layer_is_within_the_tolerance() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = nn.Linear(5, 5), nn.Linear(5, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.layer(9 * self.layer(x).relu() + 2))

    model = Twice()
    bound, optimizer = consolidated(model, BATCHES, lr=0.05)
    calls, anchor = record_calls(model, BATCHES), deepcopy(model)
    train(model, optimizer, OTHERS)
    bound.apply()
    found = [drift for name, drift in drifts(model, anchor, calls) if name == "layer"]
    assert len(found) == 2
    assert 0.05 < max(found) <= 0.1001


def test_layers_that_later_tasks_do_not_use_divide_by_their_own_tasks() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.trunk, self.heads, self.task = nn.Linear(5, 6), nn.ModuleList(nn.Linear(6, 4) for _ in range(3)), 0

        def forward(self, x: Tensor) -> Tensor:
            return self.heads[self.task](self.trunk(x).relu())

    model = Heads()
    bound, optimizer = make_bound(model, lr=0.01)
    for model.task in range(3):
        train(model, optimizer, BATCHES, 2)
        bound.consolidate(BATCHES, cross_entropy)
    telemetry = bound.telemetry()
    assert bound.tasks == 3
    assert telemetry["layers/trunk/allowed"] == pytest.approx(0.1 / 3**0.5)
    assert [telemetry[f"layers/heads.{n}/allowed"] for n in range(3)] == [0.1] * 3


def test_tolerance_per_layer() -> None:
    model = make_mlp()
    bound, optimizer = consolidated(model, BATCHES, tolerance={"0": 0.02}, lr=2.0)
    train(model, optimizer, OTHERS)
    bound.apply()
    telemetry = bound.telemetry()
    assert telemetry["layers/0/drift"] == pytest.approx(0.02, rel=1e-3)
    assert telemetry["layers/2/drift"] == pytest.approx(0.1, rel=1e-3)


def test_consolidations_without_a_step_are_one_task() -> None:
    model, far = make_mlp(), make_batches(8, 5, seed=3, shift=2.0)
    once, twice = (make_bound(deepcopy(model), examples=99)[0] for _ in range(2))
    once.consolidate(BATCHES, cross_entropy)
    for _ in range(3):
        twice.consolidate(BATCHES, cross_entropy)
    assert twice.tasks == 1
    for name, memory in once.memory.items():
        torch.testing.assert_close(twice.memory[name].moments.values, memory.moments.values, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(twice.memory[name].energy, memory.energy, rtol=1e-5, atol=0)
    once.consolidate(far, cross_entropy)
    together, _ = make_bound(deepcopy(model), examples=99)
    together.consolidate(BATCHES + far, cross_entropy)
    for name, memory in together.memory.items():
        torch.testing.assert_close(once.memory[name].energy, memory.energy, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(once.memory[name].moments.trace, memory.moments.trace, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("every", [1, 3])
def test_projections_happen_every_few_steps(every: int) -> None:
    model = make_mlp()
    bound, optimizer = consolidated(model, BATCHES, every=every, lr=3.0)
    outside = []
    for _ in range(6):
        train(model, optimizer, OTHERS, 1)
        outside.append(bound.telemetry()["drift"] > 1.001)
    assert outside == ([False] if every == 1 else [True, True, False]) * (6 // every)
    assert bound.telemetry()["acted"] == sum(bound.telemetry()[f"layers/{n}/acted"] for n in ("0", "2"))


# -- Faults of the first version -----------------------------------------------------------------------


def test_zero_inputs_and_zero_weights() -> None:
    model = nn.Sequential(nn.Linear(5, 6, bias=False), nn.ReLU(), nn.Linear(6, 4))
    for parameter in model[2].parameters():
        nn.init.zeros_(parameter)
    bound, optimizer = consolidated(model, [(torch.zeros_like(x), y) for x, y in BATCHES], every=1)
    nn.init.normal_(model[0].weight)
    train(model, optimizer, OTHERS, 10)
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
    assert model[2].bias.norm() > 1e-3, "a layer of zeros can never move"
    assert all(math.isfinite(value) for value in bound.telemetry().values())


@pytest.mark.parametrize("bad", ["nan", "empty", "loss", "order", "shape", "old"])
def test_failed_consolidations_change_nothing(bad: str) -> None:
    model = make_mlp()
    bound, optimizer = consolidated(model, BATCHES)
    train(model, optimizer, OTHERS, 1)
    bound.apply()
    x, y = OTHERS[0]
    broken = torch.where(torch.arange(8)[:, None] == 3, float("nan"), x)
    arguments: Any = {
        "nan": ([OTHERS[1], (broken, y)], cross_entropy),
        "empty": (DataLoader(TensorDataset(x[:0], y[:0])), cross_entropy),
        "loss": (OTHERS, nn.CrossEntropyLoss(reduction="none")),
        "order": (cross_entropy, OTHERS),
        "shape": ((x, y), cross_entropy),
        "old": (model, OTHERS, cross_entropy),
    }[bad]
    message = {"nan": "layer '0'", "empty": "at least one batch", "loss": "scalar"}.get(bad, "`batches` must")
    before, weights, random = bound.state_dict(), copy_weights(model), torch.get_rng_state()
    with pytest.raises(ValueError, match=message) as caught:
        bound.consolidate(*arguments)
    assert "\n" not in str(caught.value)
    after = bound.state_dict()
    assert after["tasks"] == before["tasks"]
    assert after["before"] is before["before"] is None
    assert torch.equal(after["generator"], before["generator"])
    assert torch.equal(after["layers"]["0"]["axes"], before["layers"]["0"]["axes"])
    assert same(weights, copy_weights(model))
    assert torch.equal(torch.get_rng_state(), random)
    assert model.training


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_other_precisions(dtype: torch.dtype) -> None:
    model = make_mlp().to(dtype)
    batches, others = ([(x.to(dtype) * 100, y) for x, y in own] for own in (BATCHES, OTHERS))
    bound, optimizer = consolidated(model, batches, every=1, lr=1e-3)
    calls, anchor = record_calls(model, batches), deepcopy(model)
    train(model, optimizer, others)
    found = dict(drifts(model, anchor, calls))
    slack = {torch.float16: 1.02, torch.bfloat16: 1.2, torch.float64: 1.0001}[dtype]
    assert 0.05 < max(found.values()) <= 0.1 * slack
    assert model[0].weight.dtype == dtype
    assert bound.telemetry()["acted"] > 0


def test_a_default_dtype_of_float64() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        model, batches = make_cnn(), [(x.double(), y) for x, y in make_batches(6, 2, 6, 6)]
        bound, optimizer = consolidated(model, batches, every=1)
        train(model, optimizer, batches)
        bound.consolidate(batches, cross_entropy)
        assert bound.tasks == 2
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("shuffle", [False, True])
def test_the_global_random_state_does_not_move(shuffle: bool) -> None:
    model = nn.Sequential(nn.Linear(5, 6), nn.Dropout(), nn.Linear(6, 4))
    bound, optimizer = make_bound(model, examples=5)
    x, y = BATCHES[0]
    loader = DataLoader(TensorDataset(x, y), batch_size=2, shuffle=shuffle)
    random = torch.get_rng_state()
    assert bound.consolidate(loader, cross_entropy) == 5
    assert bound.consolidate(iter([(x, y)]), cross_entropy) == 5
    optimizer.step()
    bound.apply()
    assert torch.equal(torch.get_rng_state(), random)
    assert bound.tasks == 1


# -- Frozen parameters ---------------------------------------------------------------------------------


def test_frozen_parameters_never_move() -> None:
    model = make_mlp()
    model[0].bias.requires_grad_(False)
    model[2].weight.requires_grad_(False)
    with pytest.warns(UserWarning, match=r"train as usual: 2\.bias; freeze them"):
        bound, optimizer = consolidated(model, BATCHES, every=1, lr=2.0)
    assert list(bound.memory) == ["0"]
    frozen = [model[0].bias.clone(), model[2].weight.clone()]
    train(model, optimizer, OTHERS)
    assert bound.telemetry()["layers/0/acted"] > 0
    assert same(frozen, [model[0].bias, model[2].weight])


def test_layers_frozen_after_a_task() -> None:
    """Freezing in the middle of a task holds what is there, the memory stays, and other tasks can follow."""
    model = make_mlp()
    bound, optimizer = consolidated(model, BATCHES, every=1000, lr=2.0)
    train(model, optimizer, OTHERS)
    model[0].requires_grad_(False)
    model[2].bias.requires_grad_(False)
    frozen = [*copy_weights(model[0]), model[2].bias.clone()]
    bound.apply()
    assert same(frozen, [*model[0].parameters(), model[2].bias])
    bound.consolidate(OTHERS, cross_entropy)
    assert {name: memory.tasks for name, memory in bound.memory.items()} == {"0": 2, "2": 2}
    train(model, optimizer, BATCHES, 20)
    bound.consolidate(OTHERS, cross_entropy)
    assert same(frozen, [*model[0].parameters(), model[2].bias])
    copy, _ = make_bound(deepcopy(model))
    copy.load_state_dict(bound.state_dict())
    assert list(copy.memory) == ["0", "2"]


# -- Bad input -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *[({"tolerance": value}, r"`tolerance` must be in \(0, 1\]") for value in (0, 1.5, math.nan, True, "0.1")],
        ({"tolerance": {"0": 2.0}}, "`tolerance` must be"),
        ({"tolerance": {"00": 0.1}}, "`tolerance` must name layers of the model, got '00'"),
        *[({"every": value}, "`every` must be a whole number of at least 1") for value in (0, 2.5, True)],
        ({"examples": 0}, "`examples` must be"),
        ({"energy": 0.0}, "`energy` must be in"),
        ({"clip": 0}, "`clip` must be above 0"),
        ({"seed": -1}, "`seed` must be"),
        ({"accept_above": 0.5}, "`accept_above` is an option of sfao.SFAO and sfao.Gate, not of sfao.DriftBound"),
        ({"momentum": 0.9}, "`momentum` is an option of sfao.SFAO, not of sfao.DriftBound"),
        ({"tolerence": 0.1}, "did you mean 'tolerance'"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    model = make_mlp()
    with pytest.raises(ValueError, match=message) as caught:
        DriftBound(model, **options)
    assert "\n" not in str(caught.value)
    assert not model._forward_hooks


def test_bad_calls() -> None:
    with pytest.raises(ValueError, match=r"must be a torch.nn.Module, got a generator"):
        DriftBound(make_mlp().parameters())  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="needs an optimizer to bound; call attach"):
        DriftBound(make_mlp()).consolidate(BATCHES, cross_entropy)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_stop_being_finite(value: float) -> None:
    model = make_mlp()
    bound, optimizer = consolidated(model, BATCHES, every=1)
    good = deepcopy(model.state_dict())
    with torch.no_grad():
        model[2].weight[0, 0] = value
    with pytest.raises(RuntimeError, match="weights of layer '2' must be finite"):
        optimizer.step()
    with pytest.raises(RuntimeError, match="layer '2'"):
        bound.consolidate(BATCHES, cross_entropy)
    model.load_state_dict(good)
    train(model, optimizer, OTHERS, 3)
    bound.consolidate(BATCHES, cross_entropy)
    with torch.no_grad():
        model[2].bias[3] = value
    with pytest.raises(RuntimeError, match="weights of layer '2' must be finite"):
        bound.telemetry()


def test_telemetry_and_repr() -> None:
    model, batches = make_cnn(), make_batches(6, 2, 6, 6)
    bound, optimizer = make_bound(model, examples=count_examples(batches), every=1, clip=1e-3)
    assert bound.telemetry() == {"tasks": 0.0, "memory_bytes": 0.0, "acted": 0.0, "clipped": 0.0}
    bound.consolidate(batches, cross_entropy)
    train(model, optimizer, batches, 4)
    telemetry = bound.telemetry()
    own = {f"layers/{n}/{key}" for n in (0, 1, 3, 5) for key in ("drift", "allowed", "acted", "clipped")}
    assert set(telemetry) == own | {"tasks", "memory_bytes", "drift", "acted", "clipped"}
    assert telemetry["layers/0/clipped"] == 4
    assert telemetry["tasks"] == 1
    shares = [telemetry[f"layers/{n}/drift"] / telemetry[f"layers/{n}/allowed"] for n in (0, 1, 3, 5)]
    assert telemetry["drift"] == pytest.approx(max(shares))
    assert repr(bound) == "DriftBound(every=1, energy=1.0, examples=18, clip=0.001, 1 tasks)"
    assert repr(DriftBound(model)) == "DriftBound(0 tasks)"
    assert isinstance(optimizer, optim.SGD)
