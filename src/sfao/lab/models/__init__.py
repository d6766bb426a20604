"""The models of the benchmarks, by name, with weights that depend on the seed alone."""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from sfao.checks import check_count, nearest
from sfao.lab.models.alexnet import alexnet
from sfao.lab.models.builders import Builder, adapt_builder
from sfao.lab.models.cnn import cnn
from sfao.lab.models.mlp import mlp
from sfao.lab.models.resnet import resnet_18
from sfao.lab.models.timm import timm_model
from sfao.lab.models.vit import vit
from sfao.lab.models.wide_resnet import wide_resnet, wrn_28_10
from sfao.lab.names import Names, read_parameters

__all__ = ["MODELS", "build_model", "check_sizes", "reinitialise", "size_options", "wide_resnet"]

BUILDERS: dict[str, Builder] = {
    "mlp": mlp,
    "cnn": cnn,
    "alexnet": alexnet,
    "resnet-18": resnet_18,
    "wrn-28-10": wrn_28_10,
    "vit": vit,
    "timm": timm_model,
}
#: A builder takes the input shape, the number of outputs and its own sizes, which are its options.
MODELS: Names[Builder] = Names("model", "sfao.models", adapt_builder, BUILDERS)


def build_model(name: str, input_shape: tuple[int, ...], outputs: int, seed: int, **sizes: Any) -> nn.Module:
    """Return a model on the CPU, initialised by torch's layers from the seed; no generator of the caller moves."""
    build = MODELS.find("model", name)
    check_count("outputs", outputs)
    check_sizes(name, sizes)
    # torch.manual_seed would seed the generators of every device, also those that fork_rng does not restore.
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = build(input_shape, outputs, **sizes)
    if not isinstance(model, nn.Module):
        raise ValueError(f"`model` {name!r} must make a torch.nn.Module, got {type(model).__name__}")
    return model


def reinitialise(model: nn.Module, seed: int) -> None:
    """Initialise a model again by torch's layers, from the seed; no generator of the caller moves."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        fresh = deepcopy(model).cpu()  # so that the weights are the same whatever the device
        for module in fresh.modules():
            if callable(reset := getattr(module, "reset_parameters", None)):
                reset()
    model.load_state_dict(fresh.state_dict())


def size_options(name: str) -> tuple[str, ...]:
    """Return the names of the sizes that a model accepts."""
    return tuple(parameter.name for parameter in read_parameters(MODELS[name])[2:])


def check_sizes(name: str, sizes: Iterable[str]) -> None:
    """Raise a ValueError for a size that a model doesn't accept."""
    known = size_options(name)
    for size in sizes:
        if size not in known:
            raise ValueError(f"unknown option `{size}`{nearest(size, known)}; the options are {', '.join(known)}")
