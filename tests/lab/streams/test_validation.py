import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfao.lab.streams.validation import draw_validation


@given(
    counts=st.lists(st.integers(10, 40), min_size=1, max_size=5),
    fraction=st.just(0.0) | st.floats(0.1, 0.9),
    seed=st.integers(0, 99),
)
@settings(max_examples=50, deadline=None)
def test_every_class_gives_the_same_fraction(counts, fraction, seed):
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]
    held = draw_validation(labels, fraction, seed)
    assert [int(held[labels == label].sum()) for label in range(len(counts))] == [round(fraction * n) for n in counts]


def test_the_seed_decides_which_examples():
    labels = torch.arange(3).repeat(20)
    assert torch.equal(draw_validation(labels, 0.3, seed=1), draw_validation(labels, 0.3, seed=1))
    assert not torch.equal(draw_validation(labels, 0.3, seed=1), draw_validation(labels, 0.3, seed=2))


def test_classes_are_drawn_independently():
    labels = torch.arange(2).repeat(50)
    held = draw_validation(labels, 0.5, seed=0)
    assert not torch.equal(held[labels == 0], held[labels == 1])


@pytest.mark.parametrize("fraction", [-0.1, 1, 1.5, float("nan")])
def test_fractions_outside_their_range_are_refused(fraction):
    with pytest.raises(ValueError, match=r"`validation` must be in \[0, 1\), got"):
        draw_validation(torch.tensor([0, 1]), fraction, seed=0)


@pytest.mark.parametrize("fraction", [0.1, 0.9])
def test_a_fraction_that_holds_out_none_or_all_of_a_class_is_refused(fraction):
    labels = torch.tensor([0, 0, 1, 1, 1, 1, 1])
    message = r"`validation` must hold out some and leave some of the 2 training examples of class 0, got 0\."
    with pytest.raises(ValueError, match=message):
        draw_validation(labels, fraction, seed=0)


def test_nothing_is_held_out_of_single_examples_by_default():
    assert not draw_validation(torch.arange(4), 0.0, seed=0).any()
