"""The AlexNet of the experiments with GPM, SGP and TRGP, for small images."""

from collections import OrderedDict

from torch import nn

from sfao.checks import check_count


def alexnet(input_shape: tuple[int, ...], outputs: int, hidden: int = 2048) -> nn.Sequential:
    """Build three blocks of convolution, BatchNorm, ReLU, dropout and pooling, and two hidden layers.

    No layer has a bias. As in the authors' code, BatchNorm always normalizes with the statistics of the batch.

    Args:
        input_shape: channels, height and width.
        outputs: the number of outputs.
        hidden: units of each hidden layer.
    """
    check_count("hidden", hidden)
    channels, size, width = input_shape
    if size != width or size < 22:
        raise ValueError(f"`input_shape` must be square and at least 22x22 pixels for alexnet, got {size}x{width}")
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for number, (features, kernel, dropout) in enumerate([(64, 4, 0.2), (128, 3, 0.2), (256, 2, 0.5)], start=1):
        layers[f"conv{number}"] = nn.Conv2d(channels, features, kernel, bias=False)
        layers[f"bn{number}"] = nn.BatchNorm2d(features, track_running_stats=False)
        layers[f"relu{number}"] = nn.ReLU()
        layers[f"dropout{number}"] = nn.Dropout(dropout)
        layers[f"pool{number}"] = nn.MaxPool2d(2)
        channels, size = features, (size - kernel + 1) // 2
    layers["flatten"] = nn.Flatten()
    inputs = channels * size * size
    for number in (4, 5):
        layers[f"fc{number - 3}"] = nn.Linear(inputs, hidden, bias=False)
        layers[f"bn{number}"] = nn.BatchNorm1d(hidden, track_running_stats=False)
        layers[f"relu{number}"] = nn.ReLU()
        layers[f"dropout{number}"] = nn.Dropout(0.5)
        inputs = hidden
    layers["classifier"] = nn.Linear(hidden, outputs, bias=False)
    return nn.Sequential(layers)
