"""The paper's small convolutional network."""

from collections import OrderedDict

from torch import nn

from sfao.checks import check_count
from sfao.lab.models.mlp import check_parameters


def cnn(input_shape: tuple[int, ...], outputs: int, fc: int = 256) -> nn.Sequential:
    """Build two blocks of 3x3 convolution (32, 64 channels), ReLU and 2x2 max pooling; a hidden layer; a classifier.

    Args:
        input_shape: channels, height and width.
        outputs: the number of outputs.
        fc: units of the hidden layer. The paper states 128; its released code has 256.
    """
    check_count("fc", fc)
    channels, height, width = input_shape
    if min(height, width) < 4:
        raise ValueError(f"`input_shape` must be at least 4x4 pixels for two poolings, got {height}x{width}")
    flat = 64 * (height // 4) * (width // 4)
    check_parameters("fc", fc, (flat + outputs) * fc)
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv1=nn.Conv2d(channels, 32, 3, padding=1),
        relu1=nn.ReLU(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(32, 64, 3, padding=1),
        relu2=nn.ReLU(),
        pool2=nn.MaxPool2d(2),
        flatten=nn.Flatten(),
        fc=nn.Linear(flat, fc),
        relu3=nn.ReLU(),
        classifier=nn.Linear(fc, outputs),
    )
    return nn.Sequential(layers)
