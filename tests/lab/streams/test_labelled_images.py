"""Batches: the right images, normalized, in an order that only the generator decides."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfao.lab.streams import labelled_images
from sfao.lab.streams.labelled_images import LabelledImages

SHAPE = (3, 4, 5)
MEAN, STD = (0.2, 0.4, 0.6), (0.5, 0.25, 0.3)


def make_images(count=20, permutation=None, mean=MEAN, std=STD):
    """Every second image of twice as many, labelled by its index."""
    generator = torch.Generator().manual_seed(count)
    images = torch.randint(0, 256, (2 * count, *SHAPE), dtype=torch.uint8, generator=generator)
    indices = torch.arange(0, 2 * count, 2)
    return LabelledImages(images, indices, indices.clone(), mean, std, permutation)


def expected_images(source, labels):
    mean, std = (torch.tensor(values)[:, None, None] for values in (source.mean, source.std))
    return (source.images[labels].float() / 255 - mean) / std


def joined(batches):
    images, labels = zip(*batches, strict=True)
    return torch.cat(images), torch.cat(labels)


def shuffler(seed=0):
    return torch.Generator().manual_seed(seed)


@given(count=st.integers(1, 60), batch_size=st.integers(1, 70), seed=st.integers(0, 99), chunk=st.integers(1, 2000))
@settings(max_examples=60, deadline=None)
def test_a_pass_holds_every_image_once_with_its_label(count, batch_size, seed, chunk):
    source = make_images(count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(labelled_images, "CHUNK_VALUES", chunk)
        batches = list(source.batches(batch_size, shuffler(seed)))
    assert [len(labels) for _, labels in batches[:-1]] == [batch_size] * (len(batches) - 1)
    images, labels = joined(batches)
    assert sorted(labels.tolist()) == source.indices.tolist()
    torch.testing.assert_close(images, expected_images(source, labels))


@given(batch_size=st.integers(1, 25), start=st.integers(0, 30), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_start_leaves_out_the_first_batches_of_the_same_pass(batch_size, start, seed):
    source = make_images()
    whole = list(source.batches(batch_size, shuffler(seed)))
    resumed = list(source.batches(batch_size, shuffler(seed), start=start))
    assert len(resumed) == max(0, len(whole) - start)
    for (images, labels), (again, same) in zip(whole[start:], resumed, strict=True):
        assert torch.equal(images, again)
        assert torch.equal(labels, same)


def test_a_permutation_moves_the_pixels_of_every_channel_alike():
    permutation = torch.randperm(20, generator=shuffler())
    plain = joined(make_images().batches(6))[0].flatten(2)
    permuted = joined(make_images(permutation=permutation).batches(6))[0].flatten(2)
    for pixel in range(20):
        assert torch.equal(permuted[:, :, pixel], plain[:, :, permutation[pixel]])
    assert not torch.equal(permuted, plain)


def test_mean_0_and_std_1_give_exactly_the_pixels_over_255():
    source = make_images(mean=(0.0,) * 3, std=(1.0,) * 3)
    assert torch.equal(joined(source.batches(6))[0], source.images[source.indices].float() / 255)


def test_changing_a_batch_changes_neither_the_data_nor_other_batches():
    source = make_images()
    expected = joined(source.batches(6))[0].clone()
    seen = []
    for images, _ in source.batches(6):
        seen.append(images.clone())
        images.zero_()
    assert torch.equal(torch.cat(seen), expected)
    assert torch.equal(joined(source.batches(6))[0], expected)


def test_batches_come_on_the_device_asked_for():
    permuted = make_images(permutation=torch.arange(20))
    images, labels = next(permuted.batches(6, shuffler(), device="meta"))
    assert images.device.type == labels.device.type == "meta"
    assert images.shape == (6, *SHAPE)


@pytest.mark.parametrize("batch_size", [0, -1, 2.5, True])
def test_a_batch_size_that_is_no_count_is_refused_at_once(batch_size):
    with pytest.raises(ValueError, match="`batch_size` must be a whole number of at least 1, got"):
        make_images().batches(batch_size)


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("batch_size", [1, 6, 7, 50])
def test_indexed_batches_are_those_of_a_pass(shuffled, batch_size):
    source = make_images()
    passed = list(source.batches(batch_size, shuffler() if shuffled else None))
    indexed = source.as_sequence(batch_size, shuffler() if shuffled else None)
    assert len(indexed) == len(passed)
    for number in (len(passed) - 1, 0, -1):  # in any order
        assert all(torch.equal(one, two) for one, two in zip(indexed[number], passed[number], strict=True))
    assert torch.equal(joined(indexed[:3])[1], joined(passed[:3])[1])
    assert torch.equal(joined(indexed)[0], joined(passed)[0])
    with pytest.raises(IndexError):
        indexed[len(passed)]
