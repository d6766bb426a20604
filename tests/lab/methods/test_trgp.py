"""TRGP: its axes, its trust region, its scales beside a second writing of them, what it keeps, where it is refused."""

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from sfao.lab.methods.trust_region import choose_axes, choose_trusted, scale_rows
from tests.lab.methods.short_runs import events, make, play, stream, weights

OPTIONS = {"threshold": 0.8, "examples": 20, "trust": 0.05}
SECOND, THIRD = 7, 14  # where these tasks begin among the events


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def nothing(width: int) -> Tensor:
    return torch.empty(width, 0, dtype=torch.float64)


@pytest.mark.parametrize("threshold", [0.3, 0.9, 0.999])
def test_the_axes_of_a_task_are_the_fewest_that_cover_its_inputs(threshold):
    first = draw(8, 3) @ draw(3, 20, seed=1)
    second = draw(8, 20, seed=2) + 2 * draw(8, 3) @ draw(3, 20, seed=3)
    basis, _ = choose_axes(nothing(8), first, 0.9)
    grown, own = choose_axes(basis, second, threshold)
    assert torch.allclose(grown.T @ grown, torch.eye(grown.shape[1], dtype=torch.float64))
    assert torch.equal(grown[:, : basis.shape[1]], basis)
    energies = (grown[:, own].T @ second).square().sum(1) / second.square().sum()
    assert energies.sum() >= threshold
    assert energies.sum() - energies.min() < threshold
    assert set(range(basis.shape[1], grown.shape[1])) <= set(own.tolist())


def test_the_trust_region_by_hand():
    axes, gradient = torch.eye(4), torch.tensor([[3.0, 4.0, 0.0, 0.0]])  # shares of .6, .8 and 0
    spaces = {0: axes[:, :1], 1: axes[:, 1:2], 4: axes[:, 2:]}
    assert choose_trusted(gradient, spaces, 0.5, 2) == [0, 1]
    assert choose_trusted(gradient, spaces, 0.5, 1) == [1]
    assert choose_trusted(gradient, spaces, 0.7, 2) == [1]
    assert choose_trusted(gradient, spaces, 1.0, 2) == []
    assert choose_trusted(torch.zeros(1, 4), spaces, 0.0, 2) == []


def test_unit_scales_change_no_weight_and_others_only_what_lies_along_their_axes():
    rows, axes = draw(3, 8), torch.linalg.qr(draw(8, 4, seed=1)).Q
    assert torch.allclose(scale_rows(rows, [(axes, torch.eye(4, dtype=torch.float64))]), rows)
    scale = draw(4, 4, seed=2)
    scaled = scale_rows(rows, [(axes, scale)])
    assert torch.allclose(scaled @ axes, rows @ axes @ scale)
    assert torch.allclose(scaled - scaled @ axes @ axes.T, rows - rows @ axes @ axes.T)


def find_scaled(run, parameters: dict[str, Tensor], scales: dict[str, dict[int, Tensor]]) -> dict[str, Tensor]:
    """Equation 6 as the authors write it, W + W (B Q B') - W (B B'), of weights and biases."""
    found = dict(parameters)
    for name, of_layer in scales.items():
        weight = parameters[f"{name}.weight"]
        whole = torch.cat([weight.flatten(1), parameters[f"{name}.bias"][:, None]], 1)
        scaled = whole
        for past, scale in of_layer.items():
            axes = run.bases[name].double()[:, run.own_axes[past][name]]
            scaled = scaled + whole @ (axes @ scale @ axes.T) - whole @ (axes @ axes.T)
        found[f"{name}.weight"], found[f"{name}.bias"] = scaled[:, :-1].view_as(weight), scaled[:, -1]
    return found


@pytest.mark.parametrize(("scenario", "model"), [("domain", "mlp"), ("task", "mlp"), ("task", "cnn")])
def test_a_step_is_that_of_a_second_writing_with_derivatives_by_autograd(scenario, model):
    """The gradient of all weights through the scales is projected; here that of the scaled weights is."""
    tasks = stream(scenario, model)
    run = make("trgp", tasks, OPTIONS, model=model, lr=0.3)
    play(run, events(tasks)[: THIRD + 3])
    assert any(len(of_layer) == 2 for of_layer in run.scales[2].values())  # two trusted tasks
    _, _, (x, y, outputs) = events(tasks)[THIRD + 3]
    parameters = {name: one.detach().double().requires_grad_() for name, one in run.model.named_parameters()}
    scales = {
        name: {past: scale.double().clone().requires_grad_() for past, scale in of_layer.items()}
        for name, of_layer in run.scales[2].items()
    }
    logits = functional_call(run.model.double(), find_scaled(run, parameters, scales), x.double())
    cross_entropy(logits[:, outputs], y).backward()
    run.model.float()
    run.step(x, y, outputs)
    last = list(run.layers)[-1]
    for name, layer in run.layers.items():
        weight, bias = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
        gradient = torch.cat([weight.grad.flatten(1), bias.grad[:, None]], 1)
        if not (scenario == "task" and name == last):
            basis = run.bases[name].double()
            gradient = gradient - gradient @ basis @ basis.T
        expected = torch.cat([weight.flatten(1), bias[:, None]], 1) - 0.3 * gradient
        found = torch.cat([layer.weight.flatten(1), layer.bias[:, None]], 1).double()
        assert torch.allclose(found, expected, atol=1e-5)
    for name, of_layer in scales.items():
        for past, scale in of_layer.items():
            assert torch.allclose(run.scales[2][name][past].double(), scale - 0.3 * scale.grad, atol=1e-5)


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_what_a_past_task_is_answered_does_not_change(model):
    """With all of its inputs held; as the task that it is, though not as another."""
    tasks = stream("task", model)
    run = make("trgp", tasks, {"threshold": 1.0, "examples": 40, "trust": 0.05}, model=model)

    def answer(number: int, asked: int) -> Tensor:
        (x, _), *_ = tasks.tasks[asked].train.batches(40)
        with run.model_for_task(number), torch.no_grad():
            return run.model(x)[:, tasks.tasks[asked].outputs]

    play(run, events(tasks)[:THIRD])
    before = answer(0, 0), answer(1, 1)
    play(run, events(tasks)[THIRD:])
    for number in (0, 1):
        assert torch.allclose(answer(number, number), before[number], atol=1e-4)
    assert not torch.allclose(answer(2, 1), before[1], atol=1e-3)


def test_the_model_is_lent_and_comes_back_as_it_was():
    tasks = stream("task")
    run = make("trgp", tasks, OPTIONS)
    play(run, events(tasks))
    before = weights(run)
    with run.model_for_task(2) as model:
        assert not torch.equal(weights(model), before)
    assert torch.equal(weights(run), before)
    with pytest.raises(KeyError), run.model_for_task(2):
        raise KeyError
    assert torch.equal(weights(run), before)
    for number in (0, 7):  # the first task has no scales, and one that has not begun has none yet
        with run.model_for_task(number) as model:
            assert torch.equal(weights(model), before)
    scales = sum(scale.nbytes for each in run.scales for layer in each.values() for scale in layer.values())
    assert run.memory_bytes > scales > 0


def test_where_nothing_is_trusted_the_second_task_is_learnt_as_gpm_does():
    tasks = stream("task")
    both = [make("trgp", tasks, {**OPTIONS, "trust": 1.0}), make("gpm", tasks, {"threshold": 0.8, "examples": 20})]
    for run in both:
        play(run, events(tasks)[: THIRD - 1])
    assert torch.allclose(*(weights(run) for run in both), atol=1e-5)
    play(both[0], events(tasks)[THIRD - 1 :])
    assert both[0].concerns() == ["trgp: no layer ever trusted a past task; every update was GPM's"]
