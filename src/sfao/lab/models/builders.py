"""One's own models as builders, which take the input shape, the number of outputs and sizes."""

import inspect
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from torch import nn

from sfao.lab.names import read_parameters

Builder = Callable[..., nn.Module]

RULE = "must be a module, or a function or class that takes (input_shape, outputs, sizes...) or sizes alone"


def adapt_builder(found: Any, name: str) -> Builder:
    """Return a builder that makes what was found: a module, or what makes one; else raise a TypeError."""
    if isinstance(found, nn.Module):
        return _forget_shapes(lambda: deepcopy(found), [])
    if not callable(found):
        raise TypeError(f"{RULE}, got {type(found).__name__}")
    parameters = read_parameters(found)
    required = [one.name for one in parameters if one.default is one.empty]
    if not required and [one.name for one in parameters[:2]] != ["input_shape", "outputs"]:
        return _forget_shapes(found, parameters)
    if len(required) > 2 or len(parameters) < 2 or parameters[1].kind is inspect.Parameter.KEYWORD_ONLY:
        raise TypeError(f"{RULE}, got ({', '.join(one.name for one in parameters)})")
    return found  # type: ignore[no-any-return]


def _forget_shapes(make: Builder, parameters: list[inspect.Parameter]) -> Builder:
    """Return a builder that passes on sizes alone, and has them in its signature."""

    def build(input_shape: tuple[int, ...], outputs: int, **sizes: Any) -> nn.Module:
        return make(**sizes)

    shapes = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in ("input_shape", "outputs")]
    sizes = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    build.__signature__ = inspect.Signature([*shapes, *sizes])  # type: ignore[attr-defined]
    return build
