"""A multilayer perceptron."""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from math import prod

from torch import nn

from sfao.checks import check_count

#: A size beyond this is a slip: 4 GB of weights, before any gradient.
MAX_PARAMETERS = 1_000_000_000


def check_parameters(name: str, value: object, parameters: int) -> None:
    """Refuse a size before memory is allocated for its model."""
    if parameters > MAX_PARAMETERS:
        raise ValueError(f"`{name}` must give a model of at most {MAX_PARAMETERS:,} parameters, got {value!r}")


def mlp(input_shape: tuple[int, ...], outputs: int, hidden: int | Sequence[int] = 256) -> nn.Sequential:
    """Build hidden layers with ReLU and a linear classifier.

    Args:
        input_shape: the shape of one input.
        outputs: the number of outputs.
        hidden: one size or the sizes in order. The paper states 784; its released code, and its memory table, have 256.
    """
    sizes = list(hidden) if isinstance(hidden, Sequence) and not isinstance(hidden, str) else [hidden]
    for size in sizes:
        check_count("hidden", size)
    widths = [prod(input_shape), *sizes, outputs]
    check_parameters("hidden", hidden, sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise(widths)))
    layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
    for number, (fan_in, fan_out) in enumerate(pairwise(widths[:-1]), start=1):
        layers[f"hidden{number}"] = nn.Linear(fan_in, fan_out)
        layers[f"relu{number}"] = nn.ReLU()
    layers["classifier"] = nn.Linear(widths[-2], outputs)
    return nn.Sequential(layers)
