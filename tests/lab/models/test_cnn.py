import pytest
import torch

from sfao.lab.models import cnn


def test_the_stated_128_units_are_an_option():
    # 3*32*9 + 32, 32*64*9 + 64, 64*8*8*128 + 128, 128*10 + 10
    assert sum(p.numel() for p in cnn((3, 32, 32), 10, fc=128).parameters()) == 896 + 18_496 + 524_416 + 1_290


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 64, 64), (2, 4, 5)])
def test_any_image_of_at_least_four_pixels_a_side(shape):
    assert cnn(shape, 7, fc=3)(torch.zeros(2, *shape)).shape == (2, 7)


def test_the_blocks_are_convolution_relu_pooling():
    kinds = [type(layer).__name__ for layer in cnn((1, 8, 8), 2)]
    block = ["Conv2d", "ReLU", "MaxPool2d"]
    assert kinds == [*block, *block, "Flatten", "Linear", "ReLU", "Linear"]


def test_images_too_small_to_pool_twice_are_refused():
    with pytest.raises(ValueError, match="`input_shape` must be at least 4x4 pixels for two poolings, got 3x8"):
        cnn((1, 3, 8), 2)


def test_fc_must_be_a_count():
    with pytest.raises(ValueError, match="`fc` must be a whole number of at least 1, got 0"):
        cnn((1, 8, 8), 2, fc=0)
