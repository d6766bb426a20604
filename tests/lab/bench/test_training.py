"""What is timed is what it says: the decisions, the bytes, the released code's arithmetic, the precision."""

import pytest
import torch
from torch import nn

from sfao.lab.bench.cases import Case, StorageChoice, case_bytes
from sfao.lab.bench.measuring import Effort, time_steps
from sfao.lab.bench.released import ReleasedLoop
from sfao.lab.bench.training import Setting, Training

CPU = torch.device("cpu")
FACTORED = StorageChoice("factored")
SMALL = "mlp-64"


def trained(decisions="project", steps=3, model=SMALL, samples=10, storage=FACTORED, **setting) -> Training:
    training = Training(Case(model, 40, storage, samples, decisions), Setting(CPU, **setting))
    for _ in range(steps):
        training.step()
    return training


@pytest.mark.parametrize("decisions", ["project", "accept", "discard"])
def test_the_gate_decides_as_it_is_told(decisions):
    assert trained(decisions).decision_counts == {decisions: 6}


@pytest.mark.parametrize("samples", [1, 10, None])
@pytest.mark.parametrize("storage", [FACTORED, StorageChoice("dense")])
def test_a_mixture_has_all_decisions_in_it(samples, storage):
    decided = trained("mix", steps=100, samples=samples, storage=storage).decision_counts
    assert sum(decided.values()) == 202  # of two layers, with the one step that builds what projecting needs
    assert 60 <= decided["project"] <= 152
    assert min(decided["accept"], decided["discard"]) >= 10


@pytest.mark.parametrize(
    "case", [Case(SMALL), Case(SMALL, 20), Case(SMALL, 20, FACTORED, 10), Case(SMALL, is_bound=True)]
)
def test_every_case_learns_from_its_batches(case):
    training = Training(case, Setting(CPU, batch_size=8))
    before = [parameter.detach().clone() for parameter in training.model.parameters()]
    training.step()
    assert all(not torch.equal(a, b) for a, b in zip(before, training.model.parameters(), strict=True))


def test_sgd_holds_nothing_and_decides_nothing():
    training = Training(Case(SMALL), Setting(CPU))
    assert (training.memory_bytes, training.workspace_bytes, training.decision_counts) == (0, 0, {})


@pytest.mark.parametrize("storage", [FACTORED, StorageChoice("dense"), StorageChoice("dense", dtype="bfloat16")])
def test_the_memory_is_full_and_as_large_as_planned(storage):
    training = trained(storage=storage)
    assert training.memory_bytes == case_bytes(Case(SMALL, 40, storage))


@pytest.mark.parametrize("model", [SMALL, "cnn"])
def test_the_bound_acts_at_every_projection(model):
    training = Training(Case(model, is_bound=True), Setting(CPU, batch_size=2))
    for _ in range(16):
        training.step()
    acted = [value for name, value in training.bound.telemetry().items() if name.endswith("/acted")]
    assert max(acted) == 2
    assert training.memory_bytes == training.bound.memory_bytes > 0


def test_the_released_loop_subtracts_one_direction_after_the_other():
    model = nn.Linear(5, 3)
    optimizer = ReleasedLoop(model, 4)
    gradient = torch.randn(18)
    model.weight.grad, model.bias.grad = gradient[:15].view(3, 5).clone(), gradient[15:].clone()
    optimizer.step()
    for direction in optimizer.directions:
        assert direction.norm() == pytest.approx(1, abs=1e-6)
        gradient = gradient - (gradient @ direction) * direction
    left = torch.cat([model.weight.grad.flatten(), model.bias.grad])
    assert torch.allclose(left, gradient, atol=1e-6)
    assert optimizer.memory_bytes == 4 * 18 * 4


def test_mixed_precision_computes_in_bfloat16_and_the_gate_goes_on_in_float32():
    training = trained(autocast="bfloat16")
    seen = []
    training.model.classifier.register_forward_hook(lambda *args: seen.append(args[2].dtype))
    training.step()
    assert seen == [torch.bfloat16]
    assert {parameter.grad.dtype for parameter in training.model.parameters()} == {torch.float32}
    assert training.decision_counts == {"project": 8}


def test_channels_last_reaches_the_gradients_of_convolutions():
    training = trained(model="cnn", batch_size=2, channels_last=True)
    gradient = training.model.conv2.weight.grad
    assert gradient.is_contiguous(memory_format=torch.channels_last)
    assert not gradient.is_contiguous()
    assert training.decision_counts == {"project": 12}


def test_steps_take_turns_and_the_first_of_a_turn_is_not_counted():
    called = []
    steps = {name: lambda name=name: called.append(name) for name in ("one", "other")}
    times = time_steps(steps, Effort(turns=2, seconds=60, fewest=1, steps_a_turn=2), CPU)
    assert "".join(name[1] for name in called) == "nnnttt" + 2 * "nnnttt"
    assert [timing.measurements for timing in times.values()] == [4, 4]
    assert all(timing.low_ms <= timing.ms <= timing.high_ms for timing in times.values())


def test_joined_one_measurement_is_of_a_whole_turn():
    times = time_steps({"one": lambda: None}, Effort(turns=4, seconds=60, steps_a_turn=3), CPU, joined=True)
    assert times["one"].measurements == 4


def test_when_time_is_up_the_fewest_turns_are_done():
    times = time_steps({"one": lambda: None}, Effort(turns=100, seconds=0, fewest=2, steps_a_turn=1), CPU)
    assert times["one"].measurements == 2


def test_slower_steps_take_longer():
    size = {"small": 64, "large": 512}
    matrices = {name: torch.randn(n, n) for name, n in size.items()}
    steps = {name: lambda m=m: m @ m for name, m in matrices.items()}
    times = time_steps(steps, Effort(turns=10, seconds=5), CPU)
    assert times["large"].ms > 10 * times["small"].ms > 0
