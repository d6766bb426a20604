"""CIFAR in both versions."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfao.lab.data.cifar import CIFAR10_FORMAT as CIFAR10
from sfao.lab.data.cifar import CIFAR100_FORMAT as CIFAR100
from sfao.lab.data.errors import DataError
from tests.lab.data.publishers import (
    assert_same,
    binary_batch,
    pictures,
    python2_batch,
    python_batch,
    write_cifar_binary,
    write_cifar_python,
)

KINDS = pytest.mark.parametrize("kind", [CIFAR10, CIFAR100], ids=["cifar10", "cifar100"])


def python2_batch_by_columns(kind, images, labels):
    return python2_batch(kind, images, labels, fortran_order=True)


@KINDS
@given(train=st.integers(5, 12), test=st.integers(1, 4), seed=st.integers(0, 2**32 - 1))
def test_the_python_and_the_binary_version_give_identical_arrays(tmp_path_factory, kind, train, test, seed):
    root = tmp_path_factory.mktemp("cifar")
    arrays = pictures(kind, train=train, test=test, seed=seed)
    write_cifar_binary(root, kind, arrays)
    write_cifar_python(root, kind, arrays)
    binary, python = kind.list_layouts(root)
    assert_same(binary.read(), arrays)
    assert_same(python.read(), arrays)


@KINDS
@pytest.mark.parametrize("batch", [python2_batch, python2_batch_by_columns, python_batch])
def test_pickles_of_python_2_and_3_give_the_arrays_that_were_written(tmp_path, kind, batch):
    arrays = pictures(kind)
    write_cifar_python(tmp_path, kind, arrays, batch)
    assert_same(kind.list_layouts(tmp_path)[1].read(), arrays)


def refused(root, kind, version, file, content):
    write_cifar_binary(root, kind, pictures(kind))
    write_cifar_python(root, kind, pictures(kind))
    layout = kind.list_layouts(root)[version]
    (layout.folder / file).write_bytes(content)
    with pytest.raises(DataError) as caught:
        layout.read()
    message = str(caught.value)
    assert message.startswith(str(layout.folder / file))
    assert len(message.splitlines()) <= 2
    return message


@pytest.mark.parametrize("content", [b"", bytes(3072), bytes(2 * 3073 + 1)])
def test_binary_records_must_be_whole(tmp_path, content):
    message = refused(tmp_path, CIFAR10, 0, "data_batch_2.bin", content)
    assert f"whole records of 3073 bytes, got {len(content)} bytes" in message


def test_labels_must_be_in_range(tmp_path):
    arrays = pictures(CIFAR100)
    wrong = binary_batch(CIFAR100, arrays.test_images, arrays.test_labels + 95)
    assert "[0, 99], got 10" in refused(tmp_path, CIFAR100, 0, "test.bin", wrong)
    wrong = python2_batch(CIFAR100, arrays.test_images, arrays.test_labels + 95)
    assert "[0, 99], got 10" in refused(tmp_path, CIFAR100, 1, "test", wrong)
    wrong = pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"fine_labels": [-(10**30)]}, protocol=2)
    assert "must be a list of integers" in refused(tmp_path, CIFAR100, 1, "test", wrong)


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        ({b"labels": [1]}, "'data' must be an array of 3072 bytes a row, got NoneType"),
        ({b"data": np.zeros((2, 3), np.uint8), b"labels": [1, 2]}, "got an array of shape (2, 3)"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1.5, 2]}, "'labels' must be a list of integers"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]}, "must hold a label for each of the 2 images"),
        (
            {b"data": np.zeros((2, 3072), np.float32), b"labels": [1, 2]},
            "arrays must be of bytes (u1)",
        ),
        ([1, 2], "must hold a dictionary, got list"),
    ],
)
def test_a_python_batch_must_be_images_and_labels(tmp_path, batch, says):
    assert says in refused(tmp_path, CIFAR10, 1, "data_batch_5", pickle.dumps(batch, protocol=2))


@pytest.mark.parametrize("cut", [0, 1, 40, -100, -1])
def test_a_truncated_pickle_is_refused(tmp_path, cut):
    whole = python2_batch(CIFAR10, pictures(CIFAR10).test_images, pictures(CIFAR10).test_labels)
    message = refused(tmp_path, CIFAR10, 1, "data_batch_1", whole[:cut])
    assert "must be a whole pickle" in message
