"""The models of the benchmarks by name, with weights that depend on the seed alone."""

import inspect
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from sfao.checks import check_count, nearest
from sfao.lab.models.alexnet import alexnet
from sfao.lab.models.cnn import cnn
from sfao.lab.models.mlp import mlp
from sfao.lab.models.resnet import resnet_18
from sfao.lab.models.timm import timm_model
from sfao.lab.models.vit import vit
from sfao.lab.models.wide_resnet import wide_resnet, wrn_28_10
from sfao.lab.names import Registry, read_parameters

__all__ = ["MODELS", "build_model", "check_sizes", "reinitialize", "size_options", "wide_resnet"]

#: Takes the input shape, the number of outputs and its own sizes, which are its options.
Builder = Callable[..., nn.Module]

RULE = "must be a module, or a function or class that takes (input_shape, outputs, sizes...) or sizes alone"


def adapt_builder(found: Any, name: str) -> Builder:
    """Return a builder of what was found: a module, or a function or class that makes one; else raise a TypeError."""
    if isinstance(found, nn.Module):
        return _without_shapes(lambda: deepcopy(found), [])
    if not callable(found):
        raise TypeError(f"{RULE}, got {type(found).__name__}")
    parameters = read_parameters(found)
    required = [one.name for one in parameters if one.default is one.empty]
    if not required and [one.name for one in parameters[:2]] != ["input_shape", "outputs"]:
        return _without_shapes(found, parameters)
    if len(required) > 2 or len(parameters) < 2 or parameters[1].kind is inspect.Parameter.KEYWORD_ONLY:
        raise TypeError(f"{RULE}, got ({', '.join(one.name for one in parameters)})")
    return found  # type: ignore[no-any-return]


def _without_shapes(make: Builder, parameters: list[inspect.Parameter]) -> Builder:
    """Return a builder that passes on sizes alone, and has them in its signature."""

    def build(input_shape: tuple[int, ...], outputs: int, **sizes: Any) -> nn.Module:
        return make(**sizes)

    shapes = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in ("input_shape", "outputs")]
    sizes = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    build.__signature__ = inspect.Signature([*shapes, *sizes])  # type: ignore[attr-defined]
    return build


OURS: dict[str, Builder] = {
    "mlp": mlp,
    "cnn": cnn,
    "alexnet": alexnet,
    "resnet-18": resnet_18,
    "wrn-28-10": wrn_28_10,
    "vit": vit,
    "timm": timm_model,
}
MODELS: Registry[Builder] = Registry("model", "sfao.models", adapt_builder, OURS)


def build_model(name: str, input_shape: tuple[int, ...], outputs: int, seed: int, **sizes: Any) -> nn.Module:
    """Return a model on the CPU, initialized by torch's layers from the seed; the caller's generators don't move."""
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


def reinitialize(model: nn.Module, seed: int) -> None:
    """Initialize a model again by torch's layers, from the seed; the caller's generators don't move."""
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
