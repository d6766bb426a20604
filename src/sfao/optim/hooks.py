"""Watching, or changing, what layers put out while a model runs."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

#: Called with a layer, its arguments and its output; what it returns, unless None, is the output instead.
Hook = Callable[[Any, tuple[Any, ...], Tensor], Tensor | None]


@contextmanager
def hooked(layers: Iterable[nn.Module], hook: Hook) -> Iterator[None]:
    """The hook after every call of these layers, and afterwards none."""
    handles = [layer.register_forward_hook(hook) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
