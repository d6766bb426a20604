"""Hooks on a model: methods called around its passes, and BatchNorm with frozen statistics."""

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
    exist before the first compiled call; later ones are ignored by torch.compile. Copies and pickles do nothing.
    """

    def __init__(self) -> None:
        self.active = False
        #: The layers with this hook.
        self.modules: set[nn.Module] = set()

    def hook(self, model: nn.Module) -> None:
        """Hook the BatchNorm layers with running statistics, old and new ones."""
        for module in model.modules():
            if isinstance(module, _BatchNorm) and module.running_mean is not None and module not in self.modules:
                module.register_forward_pre_hook(self)
                self.modules.add(module)

    def __call__(self, module: nn.Module, args: object) -> None:
        if self.active:
            module.training = False

    def __reduce__(self) -> tuple[Any, ...]:
        return FreezeStatistics, ()
