"""The paper's decision, and the sampler of directions."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from sfao.decision import Decision, Sampler, decide, draw_distinct

cosines = st.floats(-1, 1)


@given(cosines, cosines, cosines, cosines)
def test_the_decision_follows_the_inequalities(cosine, smallest, one, other):
    discard_below, accept_above = sorted((one, other))
    decision = decide(cosine, smallest, accept_above, discard_below)
    if cosine > accept_above:
        assert decision is Decision.ACCEPT
    elif cosine > discard_below and accept_above > -1:
        assert decision is Decision.PROJECT
    elif discard_below > -1:
        assert decision is Decision.DISCARD


@given(cosines, cosines)
def test_the_ends_of_the_thresholds(cosine, threshold):
    assert decide(cosine, cosine, -1, -1) is Decision.ACCEPT
    assert decide(cosine, cosine, 1, 1) is Decision.DISCARD
    assert decide(cosine, cosine, threshold, -1) is not Decision.DISCARD


@given(st.floats(0.5, 1), st.floats(-1, -1e-9))
def test_strict_accepts_nothing_that_points_against_a_direction(largest, smallest):
    assert decide(largest, smallest, 0.1, -1, strict=True) is Decision.PROJECT
    assert decide(largest, 0.0, 0.1, -1, strict=True) is Decision.ACCEPT


@given(st.integers(0, 2**63 - 1), st.integers(0, 10**6), st.integers(2, 40), st.data())
def test_draws_are_distinct_and_depend_on_seed_and_turn_alone(seed, turn, count, data):
    samples = data.draw(st.integers(1, count - 1))
    drawn = draw_distinct(seed, range(turn, turn + 5), count, samples)
    assert ((drawn >= 0) & (drawn < count)).all()
    assert all(len(set(row)) == samples for row in drawn.tolist())
    assert torch.equal(drawn[2:3], draw_distinct(seed, range(turn + 2, turn + 3), count, samples))


def test_draws_are_those_of_every_version():
    assert draw_distinct(1, range(3), 10, 4).tolist() == [[3, 6, 8, 9], [6, 7, 0, 9], [6, 5, 8, 0]]


def test_draws_are_uniform():
    drawn = draw_distinct(3, range(6000), 6, 2)
    counts = torch.bincount(drawn.flatten(), minlength=6)
    assert (counts - 2000).abs().max() < 200
    pairs = {tuple(sorted(row)) for row in drawn.tolist()}
    assert len(pairs) == 15


def test_peeking_changes_nothing():
    sampler = Sampler(5)
    first = sampler.peek(20, 3)
    assert torch.equal(first, sampler.peek(20, 3))
    sampler.turn += 1
    assert torch.equal(sampler.peek(20, 3), Sampler(5, 1).peek(20, 3))
    assert not torch.equal(sampler.peek(20, 3), first)
    assert sampler.peek(3, 3) is None
    sampler.turn += 1000  # past what was drawn ahead
    assert torch.equal(sampler.peek(20, 3), Sampler(5, 1001).peek(20, 3))
