"""Generators, slices and validation parts: the same for the same seed, and as many of every class."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfao.lab.data.dataset import Dataset
from sfao.lab.streams.seeding import draw_validation, make_generator, slice_dataset


def test_seed_and_purpose_decide_the_numbers():
    draws = [
        torch.rand(4, generator=make_generator(seed, purpose)) for seed in (0, 1) for purpose in ("order", "classes")
    ]
    assert torch.equal(draws[0], torch.rand(4, generator=make_generator(0, "order")))
    assert len({tuple(draw.tolist()) for draw in draws}) == 4


def test_a_seed_gives_the_numbers_it_always_gave():
    drawn = torch.randperm(10, generator=make_generator(0, "class order")).tolist()
    assert drawn == [2, 9, 1, 6, 7, 3, 5, 8, 0, 4]


@pytest.fixture
def dataset() -> Dataset:
    """Three classes of 10, 20 and 5 examples; the first pixel of an image tells its index."""
    labels = torch.arange(3).repeat_interleave(torch.tensor([10, 20, 5]))
    images = torch.arange(35, dtype=torch.uint8).view(35, 1, 1, 1)
    whole = {"classes": 3, "mean": (0.0,), "std": (1.0,), "complete": True, "embedded": False}
    return Dataset("few", images, labels, images[:6], labels[:6], **whole)


@pytest.mark.parametrize(("fraction", "counts"), [(0.5, [5, 10, 3]), (0.1, [1, 2, 1]), (1e-9, [1, 1, 1])])
def test_every_class_gives_its_share_and_at_least_one(dataset, fraction, counts):
    part = slice_dataset(dataset, fraction)
    assert part.train_labels.bincount().tolist() == counts
    indices = part.train_images.flatten().long()
    assert torch.equal(dataset.train_labels[indices], part.train_labels)
    assert len(set(indices.tolist())) == sum(counts)
    assert torch.equal(part.test_images, dataset.test_images)
    assert not part.complete


def test_a_smaller_slice_is_part_of_a_larger_one_and_does_not_change(dataset):
    small, large = (set(slice_dataset(dataset, fraction).train_images.flatten().tolist()) for fraction in (0.2, 0.6))
    assert small < large
    assert set(slice_dataset(dataset, 0.2).train_images.flatten().tolist()) == small


@pytest.mark.parametrize("fraction", [0, -0.1, 1.1, float("nan")])
def test_fractions_outside_their_range_are_refused(dataset, fraction):
    with pytest.raises(ValueError, match=r"`fraction` must be in \(0, 1\], got"):
        slice_dataset(dataset, fraction)


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


def test_classes_are_drawn_independently():
    labels = torch.arange(2).repeat(50)
    held = draw_validation(labels, 0.5, seed=0)
    assert not torch.equal(held[labels == 0], held[labels == 1])


@pytest.mark.parametrize("fraction", [-0.1, 1, 1.5, float("nan")])
def test_validation_outside_its_range_is_refused(fraction):
    with pytest.raises(ValueError, match=r"`validation` must be in \[0, 1\), got"):
        draw_validation(torch.tensor([0, 1]), fraction, seed=0)


@pytest.mark.parametrize("fraction", [0.1, 0.9])
def test_a_fraction_that_holds_out_none_or_all_of_a_class_is_refused(fraction):
    labels = torch.tensor([0, 0, 1, 1, 1, 1, 1])
    message = r"`validation` must hold out some and leave some of the 2 training examples of class 0, got 0\."
    with pytest.raises(ValueError, match=message):
        draw_validation(labels, fraction, seed=0)
