import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sfao.gating._products import extreme_cosines
from sfao.gating.cosine_rule import Sampler, draw_distinct


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@given(st.integers(1, 50), st.integers(1, 60))
def test_samples_are_distinct_and_of_the_size_asked(count, samples):
    drawn = torch.arange(count)[Sampler(0).draw(count, samples)]
    assert len(set(drawn.tolist())) == len(drawn) == min(samples, count)


def test_samples_are_uniform():
    own = Sampler(0)
    hits = torch.zeros(20)
    for _ in range(4000):
        hits[own.draw(20, 5)] += 1
    assert hits.sum() == 20_000
    # 1000 expected each, standard deviation 27
    assert (hits - 1000).abs().max() < 130


def test_every_set_is_as_likely_as_any_other():
    """Not only every number: Floyd's way must make no pair more likely than another."""
    pairs = draw_distinct(3, range(15_000), 6, 2).sort(1).values
    counts = torch.unique(pairs, dim=0, return_counts=True)[1]
    assert len(counts) == 15
    # 1000 expected each, standard deviation 31
    assert (counts - 1000).abs().max() < 150


@pytest.mark.parametrize("used", [0, 1, 255, 256, 300])
def test_a_sampler_goes_on_where_it_was_saved(used):
    sampler = Sampler(5)
    for _ in range(used):
        sampler.draw(30, 4)
    again = Sampler.from_state_dict(sampler.state_dict())
    for _ in range(300):
        assert torch.equal(sampler.draw(30, 4), again.draw(30, 4))


def test_drawing_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    Sampler(0).draw(20, 5)
    assert torch.equal(before, torch.get_rng_state())


def test_extremes_signed_and_absolute():
    dots, inverse_norms = torch.tensor([2.0, -6.0, 1.0]).double(), torch.tensor([0.5, 0.25, 1.0]).double()
    assert extreme_cosines(dots, inverse_norms, 2.0, "signed") == (0.5, -0.75)
    assert extreme_cosines(dots, inverse_norms, 2.0, "absolute") == (0.75, -0.75)


def test_with_no_direction_everything_agrees():
    assert extreme_cosines(torch.zeros(0), torch.zeros(0), 2.0, "signed") == (1.0, 1.0)


def test_cosines_are_clamped():
    assert extreme_cosines(torch.tensor([1.0 + 1e-6]), torch.ones(1), 1.0, "signed") == (1.0, 1.0)
    assert extreme_cosines(torch.tensor([-1.0 - 1e-6]), torch.ones(1), 1.0, "signed") == (-1.0, -1.0)


@pytest.mark.parametrize("seed", range(5))
def test_the_sampled_maximum_grows_with_the_sample(seed):
    """Nested samples: the first k of one draw, so the maximum can only rise with k."""
    dots = torch.randn(40, generator=generator(seed))
    drawn = Sampler(7).draw(40, 39)
    tops = [extreme_cosines(dots[drawn[:k]], torch.ones(k), 10.0, "signed")[0] for k in range(1, 40)]
    assert tops == sorted(tops)
    assert tops[-1] <= float(dots.max()) / 10 + 1e-7
