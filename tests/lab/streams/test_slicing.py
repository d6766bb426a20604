"""Slices: as many of every class, always the same, and never passed off as the whole."""

import pytest
import torch

from sfao.lab.data.dataset import Dataset
from sfao.lab.streams.slicing import slice_dataset


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


def test_all_of_it_is_the_dataset_itself(dataset):
    assert slice_dataset(dataset, 1.0) is dataset


def test_a_smaller_slice_is_part_of_a_larger_one_and_does_not_change(dataset):
    small, large = (set(slice_dataset(dataset, fraction).train_images.flatten().tolist()) for fraction in (0.2, 0.6))
    assert small < large
    assert set(slice_dataset(dataset, 0.2).train_images.flatten().tolist()) == small


@pytest.mark.parametrize("fraction", [0, -0.1, 1.1, float("nan")])
def test_fractions_outside_their_range_are_refused(dataset, fraction):
    with pytest.raises(ValueError, match=r"`fraction` must be in \(0, 1\], got"):
        slice_dataset(dataset, fraction)
