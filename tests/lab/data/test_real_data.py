"""The real files, where $SFAO_DATA has them."""

import os
from pathlib import Path

import numpy as np
import pytest

from sfao.lab.data.cifar import CIFAR10_FORMAT, CIFAR100_FORMAT
from sfao.lab.data.dataset import load_dataset
from sfao.lab.data.errors import MissingData
from sfao.lab.data.root import VARIABLE
from sfao.lab.data.verify import Status, verify_dataset
from tests.lab.data.publishers import assert_same

pytestmark = pytest.mark.skipif(VARIABLE not in os.environ, reason=f"${VARIABLE} names no data")


def load_or_skip(name):
    try:
        return load_dataset(name)
    except MissingData as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_mean_and_deviation_are_those_of_the_pixels(name):
    dataset = load_or_skip(name)
    pixels = dataset.train_images[:5000].double() / 255
    np.testing.assert_allclose(pixels.mean((0, 2, 3)), dataset.mean, atol=0.01)
    np.testing.assert_allclose(pixels.std((0, 2, 3)), dataset.std, atol=0.01)


@pytest.mark.parametrize("kind", [CIFAR10_FORMAT, CIFAR100_FORMAT], ids=["cifar10", "cifar100"])
def test_both_versions_of_cifar_give_identical_arrays(kind):
    binary, python = kind.list_layouts(Path(os.environ[VARIABLE]))
    if binary.missing or python.missing:
        pytest.skip("one of the versions is not there")
    assert_same(binary.read(), python.read())


def test_full_mnist_is_the_published_one():
    if not load_or_skip("mnist").complete:
        pytest.skip("not the full set")
    assert {result.status for result in verify_dataset("mnist")} == {Status.OK}


def test_the_embedded_digits_are_digits_of_mnist():
    mnist = load_or_skip("mnist")
    known = {
        image.tobytes(): label
        for image, label in zip(mnist.train_images.numpy(), mnist.train_labels.tolist(), strict=True)
    }
    embedded = load_dataset("mnist-5k")
    for image, label in zip(embedded.train_images.numpy(), embedded.train_labels.tolist(), strict=True):
        assert known[image.tobytes()] == label
