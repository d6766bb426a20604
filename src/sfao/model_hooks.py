"""Hooks on a model: flush before evaluation and saving, and BatchNorm with frozen statistics."""

from collections.abc import Callable
from typing import Any
from weakref import WeakMethod

from torch import nn
from torch._compile import _disable_dynamo
from torch.nn.modules.batchnorm import _BatchNorm


class WeakHook:
    """Calls a method of an object while it exists. Copies and pickles do nothing.

    It is never traced. With ``torch.compile(model, fullgraph=True)`` it must be a hook of the compiled model.
    """

    def __init__(self, method: Callable[..., Any] | None = None) -> None:
        self._method = None if method is None else WeakMethod(method)

    @_disable_dynamo
    def __call__(self, *args: Any) -> Any:
        method = None if self._method is None else self._method()
        return None if method is None else method(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return WeakHook, ()


class FreezeStatistics:
    """Forward pre-hook of BatchNorm layers: with `active`, they normalize with their running statistics.

    `momentum=0` would not be enough: training would still normalize with the statistics of each batch. The hook must
    exist before the first compiled call; later ones are ignored by torch.compile.
    """

    def __init__(self) -> None:
        self.active = False

    def __call__(self, module: nn.Module, args: object) -> None:
        if self.active:
            module.training = False

    def __reduce__(self) -> tuple[Any, ...]:
        return FreezeStatistics, ()


def find_batch_norms(model: nn.Module) -> list[nn.Module]:
    """Return the BatchNorm layers with running statistics."""
    return [m for m in model.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None]


def find_root(model: nn.Module) -> nn.Module:
    """Return the module whose call is a forward pass of the model, inside DistributedDataParallel."""
    if isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
        return find_root(model.module)
    return model
