"""MNIST: where they may lie, and what is refused."""

import gzip

import numpy as np
import pytest

from sfao.lab.data import mnist
from sfao.lab.data.errors import DataError
from tests.lab.data.publishers import assert_same, digits, idx_images, idx_labels, write_mnist


@pytest.mark.parametrize("folder", ["MNIST/raw", "mnist", "."])
@pytest.mark.parametrize("packed", [True, False])
def test_every_place_gives_the_arrays_that_were_written(tmp_path, folder, packed):
    arrays = digits()
    write_mnist(tmp_path / folder, arrays, packed)
    (layout,) = [layout for layout in mnist.list_layouts(tmp_path) if not layout.missing]
    assert_same(layout.read(), arrays)


def damaged(tmp_path, name, content):
    write_mnist(tmp_path, digits(), packed=False)
    path = tmp_path / name
    path.unlink(missing_ok=True)
    (tmp_path / name.removesuffix(".gz")).unlink(missing_ok=True)
    path.write_bytes(content)
    return mnist.list_layouts(tmp_path)[-1]


IMAGES = idx_images(digits().train_images)
LABELS = idx_labels(digits().train_labels)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("train-images-idx3-ubyte", b"", "header of 16 bytes, got 0 bytes"),
        ("train-images-idx3-ubyte", LABELS, "magic number 0x00000803, got 0x00000801"),
        ("train-images-idx3-ubyte", IMAGES[:-1], "15680 bytes its header promises, got 15679"),
        ("train-images-idx3-ubyte", IMAGES + b"\0", "15680 bytes its header promises, got more"),
        ("train-images-idx3-ubyte", IMAGES[:12] + b"\0\0\0\x1d" + bytes(20 * 28 * 29), "28 x 28, got 28 x 29"),
        ("train-images-idx3-ubyte.gz", gzip.compress(IMAGES, mtime=0)[:-40], "whole gzip file"),
        ("train-images-idx3-ubyte.gz", b"<html>moved</html>", "whole gzip file"),
        ("train-images-idx3-ubyte.gz", gzip.compress(IMAGES)[:10] + b"\xff" * 500, "whole gzip file"),
        ("train-labels-idx1-ubyte", LABELS[:-1] + b"\x0a", r"\[0, 9\], got 10"),
        ("train-labels-idx1-ubyte", idx_labels(np.zeros(19)), "label for each of the 20 images .*, got 19"),
    ],
)
def test_a_wrong_file_is_named_with_the_rule_and_what_was_found(tmp_path, name, content, says):
    layout = damaged(tmp_path, name, content)
    with pytest.raises(DataError, match=says) as caught:
        layout.read()
    assert str(tmp_path / name) in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 2
