"""The step that is captured on CUDA, run without a graph: it decides and changes gradients as the plain step does."""

import copy

import pytest
import torch

from sfao.decision import Decision
from sfao.graph_step import run_graphs
from sfao.optimizer import SFAO
from sfao.step import compare_and_decide, project, read_gradients, set_norms
from tests.problem import PROJECT, loss, make_trained, network, task

pytestmark = pytest.mark.filterwarnings("ignore:the directions of these layers span:RuntimeWarning")
MIXED = {"accept_above": 0.5, "discard_below": 0.2, "samples": 3}


def make_steps(optimizer, model, seed, dtype=torch.float32):
    optimizer.zero_grad()
    x, y = task(seed, dtype=dtype)[0]
    loss(model(x), y).backward()
    return read_gradients(optimizer.gate)


def updates(steps):
    return [g.clone() for step in steps if step.decision is not Decision.DISCARD for g in step.present]


@pytest.mark.parametrize("options", [PROJECT, MIXED, {**MIXED, "storage": "factored"}, {"accept_above": -1}], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_same_updates_as_the_plain_step(options, dtype):
    model = network(dtype=dtype)
    optimizer = SFAO(model, capacity=9, **options)
    for number in range(2):
        optimizer.consolidate(task(number, dtype=dtype), loss)
    decisions = set()
    for seed in range(10, 30):
        fast = make_steps(optimizer, model, seed, dtype)
        assert run_graphs(optimizer.gate, fast)
        changed = updates(fast)
        slow = make_steps(optimizer, model, seed, dtype)
        set_norms(slow)
        compare_and_decide(slow)
        project([step for step in slow if step.decision is Decision.PROJECT])
        for one, other in zip(fast, slow, strict=True):
            assert one.decision is other.decision
            assert one.kept == pytest.approx(other.kept, abs=1e-4)
            assert one.cosine == pytest.approx(other.cosine, abs=1e-5)
            assert one.sample is other.sample or torch.equal(one.sample, other.sample)
            one.layer.sampler.turn += 1
        tolerance = 1e-2 if dtype == torch.bfloat16 else 1e-5
        assert all(torch.allclose(a, b, atol=tolerance) for a, b in zip(changed, updates(slow), strict=True))
        decisions |= {step.decision for step in fast}
    assert len(optimizer.gate.graphs) == 1
    assert len(decisions) == (3 if "samples" in options else 1)


def test_layers_that_need_float64_are_projected_without_a_graph():
    model, optimizer = make_trained(1, capacity=20, **PROJECT)
    with torch.no_grad():
        model[2].weight[0, 0] += 1e-3
    optimizer.consolidate(task(0), loss)  # nearly the same directions again
    fast = make_steps(optimizer, model, 0)
    slow = [type(step)(step.layer, [gradient.clone() for gradient in step.gradients]) for step in fast]
    assert run_graphs(optimizer.gate, fast)
    set_norms(slow)
    compare_and_decide(slow)
    project(slow)
    assert max(step.kept for step in fast) < 1e-3
    for one, other in zip(fast, slow, strict=True):
        for update, expected in zip(one.present, other.present, strict=True):
            assert torch.allclose(update, expected, atol=1e-7)
    assert optimizer.risk() < 1e-6


def test_rare_cases_are_left_to_the_plain_step():
    model, optimizer = make_trained(1, capacity=5, **PROJECT)
    assert run_graphs(optimizer.gate, make_steps(optimizer, model, 3))
    for factor in (1e20, float("nan")):
        steps = make_steps(optimizer, model, 3)
        for gradient in steps[0].present:
            gradient.mul_(factor)
        before = [gradient.clone() for step in steps for gradient in step.present]
        assert not run_graphs(optimizer.gate, steps)
        after = [gradient for step in steps for gradient in step.present]
        assert all(torch.equal(a.nan_to_num(9), b.nan_to_num(9)) for a, b in zip(before, after, strict=True))
    steps = make_steps(optimizer, model, 3)
    torch._foreach_zero_(steps[0].present)
    assert run_graphs(optimizer.gate, steps)
    assert [step.decision for step in steps] == [None, Decision.PROJECT]  # a zero gradient decides nothing


def test_graphs_belong_to_a_memory_and_to_the_projection_off_its_span():
    model, optimizer = make_trained(1, capacity=5)
    gate = optimizer.gate
    assert run_graphs(gate, make_steps(optimizer, model, 0))
    before = dict(gate.graphs)
    optimizer.consolidate(task(1), loss)
    assert run_graphs(gate, make_steps(optimizer, model, 0))
    assert gate.graphs.keys().isdisjoint(before)
    optimizer.param_groups[0]["projection"] = "cone"
    assert not run_graphs(gate, make_steps(optimizer, model, 0))
    empty = SFAO(copy.deepcopy(model))
    assert not run_graphs(empty.gate, make_steps(empty, model, 0))
    spanned_model, spanned = make_trained(0)
    spanned.consolidate(task(0), target="logit")
    assert not run_graphs(spanned.gate, make_steps(spanned, spanned_model, 0))
