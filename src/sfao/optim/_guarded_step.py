"""The step of an optimizer, undone as far as it can be when it fails: torch's hooks are not told of errors."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any
from weakref import ref

from torch.optim import Optimizer

from sfao.optim._whole_or_not import undo_on_error


class GuardedStep:
    """A step() that takes the place of an optimizer's, and of what others have put in its place before."""

    def __init__(self, optimizer: Optimizer, undo: Callable[[], object]) -> None:
        #: Weak, as in torch's schedulers: an optimizer that nobody holds any more is gone.
        self._optimizer = ref(optimizer)
        self._before = optimizer.__dict__.get("step")
        self._undo = undo

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Step as before; undo it if that fails or is interrupted."""
        optimizer: Any = self._optimizer()
        step = self._before or partial(type(optimizer).step, optimizer)
        return undo_on_error(partial(step, *args, **kwargs), self._undo)


def guard_step(optimizer: Optimizer, undo: Callable[[], object]) -> Callable[..., Any]:
    """Call `undo` whenever step() of this optimizer fails or is interrupted; return what takes the place of step()."""
    guarded = GuardedStep(optimizer, undo)

    @wraps(optimizer.__dict__.get("step", type(optimizer).step))
    def step(*args: Any, **kwargs: Any) -> Any:
        return guarded.run(*args, **kwargs)

    @wraps(step)
    def of_optimizer(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        return guarded.run(*args, **kwargs)

    step.__func__ = of_optimizer  # type: ignore[attr-defined]  # a scheduler wraps the function of a method
    optimizer.step = step  # type: ignore[method-assign]
    return step


def release_step(optimizer: Optimizer, guarded: Callable[..., Any]) -> None:
    """Let step() be what it was, unless somebody has wrapped it since: there is nothing to undo any more anyway."""
    if optimizer.__dict__.get("step") is not guarded:
        return
    del optimizer.__dict__["step"]
    before = guarded.__wrapped__
    if before is not type(optimizer).step:
        optimizer.step = before  # type: ignore[method-assign]
