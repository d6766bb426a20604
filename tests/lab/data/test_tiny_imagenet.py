"""Tiny ImageNet's folders of JPEG files."""

import numpy as np
import pytest
from PIL import Image

from sfao.lab.data import tiny_imagenet
from sfao.lab.data.errors import DataError
from tests.lab.data.publishers import flat_image, write_tiny_imagenet


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("tiny")
    write_tiny_imagenet(root, train=2)
    return tiny_imagenet.list_layouts(root)[0]


def test_images_and_labels_belong_together(whole):
    arrays = whole.read()
    assert arrays.train_images.shape == (400, 3, 64, 64)
    assert arrays.test_images.shape == (200, 3, 64, 64)
    # Red is the number of the class, as the line of wnids.txt gives it; JPEG is off by a few.
    for images, labels in ((arrays.train_images, arrays.train_labels), (arrays.test_images, arrays.test_labels)):
        assert np.abs(images[:, 0].mean((1, 2)) - labels).max() < 4
    assert np.abs(arrays.test_images[:, 1].mean((1, 2)) - 200).max() < 4  # green tells the split
    assert (np.bincount(arrays.train_labels) == 2).all()


@pytest.fixture
def folder(tmp_path):
    return write_tiny_imagenet(tmp_path, validation=3)


def test_a_grey_image_becomes_colour(folder):
    path = folder / "val" / "images" / "val_0.JPEG"
    Image.new("L", (64, 64), 130).save(path)
    assert (np.abs(tiny_imagenet.decode(path).astype(int) - 130) < 4).all()


def truncate(folder):
    path = folder / "val" / "images" / "val_1.JPEG"
    path.write_bytes(path.read_bytes()[:-20])
    return path, "whole JPEG file"


def replace_by_png(folder):
    path = folder / "val" / "images" / "val_1.JPEG"
    flat_image((1, 2, 3)).save(path, format="PNG")
    return path, "whole JPEG file"


def resize(folder):
    path = folder / "val" / "images" / "val_1.JPEG"
    flat_image((1, 2, 3), (64, 63)).save(path)
    return path, "64 x 64 pixels, got 64 x 63"


def empty_class(folder):
    (path,) = (folder / "train" / "n00009990" / "images").iterdir()
    path.unlink()
    return path.parent, "JPEG files of class n00009990, got none"


def name_an_unknown_class(folder):
    path = folder / "val" / "val_annotations.txt"
    path.write_text("val_0.JPEG\tn00000000\t0\t0\t63\t63\n")
    return path, "line 1 must be a file name and a class of wnids.txt"


def climb_out(folder):
    path = folder / "val" / "val_annotations.txt"
    path.write_text("../../secret.JPEG\tn00009999\t0\t0\t63\t63\n")
    return path, "line 1 must be a file name"


def drop_a_class(folder):
    path = folder / "wnids.txt"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    return path, "200 different classes, got 199 in 199 lines"


DAMAGES = [
    truncate,
    replace_by_png,
    resize,
    empty_class,
    name_an_unknown_class,
    climb_out,
    drop_a_class,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_with_the_rule(folder, damage):
    path, says = damage(folder)
    with pytest.raises(DataError) as caught:
        tiny_imagenet.list_layouts(folder.parent)[0].read()
    assert str(caught.value).startswith(str(path))
    assert says in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 2
