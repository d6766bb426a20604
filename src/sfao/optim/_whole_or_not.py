"""Work that is done whole or not at all, and surroundings that are put back, wherever an interrupt comes.

A `with` would not do: an interrupt at its end, before `__exit__` has begun, leaves everything as it is meanwhile.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

import torch
from torch import nn

T = TypeVar("T")


class Exactly(Protocol):
    """Does work outside autograd, with exact products; see `Gate._exactly`."""

    def __call__(self, work: Callable[[], T]) -> T: ...


def restore_after(work: Callable[[], T], restore: Callable[[], object]) -> T:
    """Return what `work` returns, after `restore`, which is called twice: an interrupt may cut the first call short."""
    try:
        try:
            return work()
        finally:
            restore()
    finally:
        restore()


def undo_on_error(work: Callable[[], T], undo: Callable[[], object]) -> T:
    """Return what `work` returns; if it fails, or is interrupted, `undo` it, once more should that be interrupted."""
    try:
        return work()
    except BaseException:
        try:
            undo()
        except BaseException:
            undo()
        raise


def leave_undisturbed(model: nn.Module, device: str, work: Callable[[], T]) -> T:
    """Return what `work` returns; model and thread are then as they were."""
    thread, before = ThreadState(device), ModelState(model)

    def restore() -> None:
        thread.restore()
        before.restore()

    return restore_after(work, restore)


class ThreadState:
    """What torch does in this thread: autograd, autocast, and the modes that see what is called."""

    __slots__ = ("_autocast", "_device", "_dispatched", "_functions", "_has_grad")

    def __init__(self, device: str) -> None:
        self._device = device
        self._has_grad = torch.is_grad_enabled()
        self._autocast = torch.is_autocast_enabled(device)
        self._functions = torch._C._len_torch_function_stack()
        self._dispatched = torch._C._len_torch_dispatch_stack()

    def leave_autograd(self) -> None:
        """Take no part in autograd and autocast from here on."""
        torch._C._set_grad_enabled(False)
        if self._autocast:
            torch.set_autocast_enabled(self._device, False)

    def restore(self) -> None:
        """Go back to how it was."""
        torch._C._set_grad_enabled(self._has_grad)
        if self._autocast != torch.is_autocast_enabled(self._device):
            torch.set_autocast_enabled(self._device, self._autocast)
        while torch._C._len_torch_function_stack() > self._functions:
            torch._C._pop_torch_function_stack()
        while torch._C._len_torch_dispatch_stack() > self._dispatched:
            torch._C._pop_torch_dispatch_stack(None)


class ModelState:
    """The modes of a model's modules, their hooks, and the gradients of its parameters."""

    def __init__(self, model: nn.Module) -> None:
        self._modes = [(module, module.training, set(module._forward_hooks)) for module in model.modules()]
        self._gradients = [(parameter, parameter.grad) for parameter in model.parameters()]

    def restore(self) -> None:
        """Go back to how it was."""
        for module, is_training, hooks in self._modes:
            module.training = is_training
            for added in set(module._forward_hooks) - hooks:
                module._forward_hooks.pop(added, None)
        for parameter, gradient in self._gradients:
            if parameter.grad is not gradient:
                parameter.grad = gradient
