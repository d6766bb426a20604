"""The device gate by itself: what it does to gradients, wherever they lie."""

import pytest
import torch
from torch import Tensor

from sfao.gating._layout import lay_out
from sfao.gating.cosine_rule import COSINE_RULE, Sampler
from sfao.gating.decision import ACCEPTED, DISCARDED, PROJECTED, ZERO
from sfao.gating.memory import Memory
from sfao.gating.options import DEFAULTS
from sfao.gating.storage import Storage
from sfao.optim._host_path import as_matrices, measure_norm
from tests.on_device import DEVICE, engine

pytestmark = pytest.mark.usefixtures("_on_device")

SHAPES = [(18, 24), (18,)]


def member(memory, options, gradients):
    return engine.Member(memory, options, COSINE_RULE, COSINE_RULE.initial_state(), gradients)


def memory_of(directions: list[list[Tensor]], storage: str = "dense") -> Memory:
    layout = lay_out([gradient.shape for gradient in directions[0]])
    memory = Memory([Storage(storage, 2, "float32").make(one) for one in layout], 20, torch.Generator())
    memory.to(DEVICE)
    for direction in directions:
        memory.store_if_admitted(
            as_matrices(layout, direction), measure_norm(direction), 0, eviction="fifo", admit_below=1.0
        )
    return memory


def random(count: int) -> list[list[Tensor]]:
    return [[torch.randn(shape, device=DEVICE) for shape in SHAPES] for _ in range(count)]


def gate_over(memory: Memory, gradients: list[Tensor], **options) -> engine.DeviceGate:
    return engine.DeviceGate([member(memory, {**DEFAULTS, "samples": 20, **options}, gradients)])


@pytest.mark.parametrize("storage", ["dense", "factored"])
def test_what_is_left_is_orthogonal_to_every_direction(storage):
    memory, (gradients,) = memory_of(random(9), storage), random(1)
    before = measure_norm(gradients)
    gate = gate_over(memory, gradients, accept_above=1, discard_below=-1)
    gate.run()
    assert gate.codes.tolist() == [PROJECTED]
    assert gate.norms.item() == pytest.approx(before, rel=1e-6)
    along = memory.products.dots(as_matrices(memory.products.layouts, gradients))
    assert along.abs().max() <= 5e-6 * measure_norm(gradients)
    assert measure_norm(gradients) > 0.5 * before


def test_accepting_keeps_every_bit_and_discarding_none():
    memory, (gradients,) = memory_of(random(3)), random(1)
    before = [gradient.clone() for gradient in gradients]
    gate_over(memory, gradients, accept_above=-1, discard_below=-1).run()
    assert all(torch.equal(one, two) for one, two in zip(gradients, before, strict=True))
    gate = gate_over(memory, gradients, accept_above=1, discard_below=1)
    gate.run()
    assert not any(gradient.any() for gradient in gradients)
    gate.run()
    assert gate.codes.tolist() == [ZERO]
    assert gate.counts.tolist() == [[0, 0, 1, 1]]


def test_the_largest_cosine_decides_and_is_told():
    memory, (gradients,) = memory_of(directions := random(4)), random(1)
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    cosines = [torch.cosine_similarity(flat, torch.cat([b.flatten() for b in d]), dim=0).item() for d in directions]
    largest = max(cosines)
    for accept_above, code in ((largest - 1e-4, ACCEPTED), (largest + 1e-4, DISCARDED)):
        copies = [gradient.clone() for gradient in gradients]
        gate = gate_over(memory, copies, accept_above=accept_above, discard_below=accept_above)
        gate.run()
        assert gate.codes.tolist() == [code]
        assert gate.cosines.item() == pytest.approx(largest, abs=1e-6)


def test_gradients_at_other_addresses():
    memory, (first, second) = memory_of(random(5)), random(2)
    gate = gate_over(memory, first, accept_above=1, discard_below=-1)
    gate.run()
    after_first, expected = [g.clone() for g in first], [g.clone() for g in second]
    gate_over(memory, expected, accept_above=1, discard_below=-1).run()
    gate.point_at([gradient.data_ptr() for gradient in second])
    gate.run()
    assert all(torch.equal(one, two) for one, two in zip(second, expected, strict=True))
    assert all(torch.equal(one, two) for one, two in zip(first, after_first, strict=True))


def test_one_gradient_that_is_not_finite_clears_all_of_them():
    memory, (gradients, others) = memory_of(random(3)), random(2)
    gradients[1][0] = torch.inf
    options = {**DEFAULTS, "samples": 2}
    gate = engine.DeviceGate([member(memory, options, others), member(memory_of(random(1)), options, gradients)])
    gate.run()
    assert gate.broken.tolist() == [False, True]
    assert not gate.sound
    assert not gate.counts.any()
    assert not any(gradient.any() for gradient in (*gradients, *others))


def test_a_projection_that_is_not_linear_is_refused():
    memory, (gradients,) = memory_of(random(2)), random(1)
    with pytest.raises(ValueError, match="`projection` must be linear on a device, got 'cone'"):
        gate_over(memory, gradients, projection="cone")


def test_directions_that_depend_more_on_each_other_need_more_passes():
    assert [engine._count_repeats(smallest) for smallest in (1.0, 1e-2, 1e-4, 3e-6, 1e-9)] == [1, 2, 3, 12, 12]
    assert engine.MAX_PASSES == 12


@pytest.mark.parametrize("seed", [0, 7919, 2**63 - 1])
def test_samples_are_those_of_the_host(seed):
    memory, (gradients,) = memory_of(random(17)), random(1)
    memory.sampler = Sampler(seed, turn=1000)
    expected = Sampler(seed, turn=1000)
    gate = gate_over(memory, gradients, samples=5, accept_above=-1, discard_below=-1)
    for _ in range(10):
        gate.run()
        assert gate._sample[0, :5].tolist() == expected.draw(17, 5).tolist()
    assert gate.turns.tolist() == [1010]
