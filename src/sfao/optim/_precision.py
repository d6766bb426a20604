"""Matrix products as exact as float32, where a user has lowered their precision for the model.

The precision of a backend is one for all threads: it stays as it is, and products are taken in float64 instead, by a
mode of this thread alone.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from sfao.optim._whole_or_not import ThreadState, restore_after

T = TypeVar("T")

#: Names of precisions that round no more than float32 does.
EXACT = ("ieee", "none")
#: From torch 2.9 on every backend has a precision of its own, and the older way to ask fails once the new one was used.
BACKENDS: tuple[Any, ...] = (
    (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]
    if hasattr(torch.backends.cuda.matmul, "fp32_precision")
    else ()
)
#: Operations that a lowered precision rounds; those in place end in "_".
PRODUCTS = ("mm", "bmm", "mv", "dot", "addmm", "addmv", "baddbmm", "addbmm")


def find_lowered() -> set[str]:
    """Return the precisions, lower than that of float32, in which the backends multiply now."""
    if BACKENDS:
        return {backend.fp32_precision for backend in BACKENDS}.difference(EXACT)
    precision = torch.get_float32_matmul_precision()
    return set() if precision == "highest" else {"tf32" if precision == "high" else precision}


def work_exactly(work: Callable[[], T], device: str, in_tf32: Callable[[], bool] = lambda: False) -> T:
    """Return what `work` returns, outside autograd and autocast, with exact products.

    Where `in_tf32` returns True, products may be rounded as the model's are in TF32.
    """
    thread = ThreadState(device)

    def work_alone() -> T:
        thread.leave_autograd()
        lowered = find_lowered()
        if not lowered or (lowered == {"tf32"} and in_tf32()):
            return work()
        with ExactProducts():  # type: ignore[no-untyped-call]
            return work()

    return restore_after(work_alone, thread.restore)


class ExactProducts(TorchDispatchMode):
    """Products of matrices in float32 are taken in float64, and rounded once."""

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        name = func.overloadpacket.__name__
        plain = name.removesuffix("_")
        if plain not in PRODUCTS or not any(map(_is_narrow, args)):
            return func(*args, **options)
        target = args[0] if name != plain else options.pop("out", None)
        wide: Callable[..., Tensor] = getattr(torch.ops.aten, plain)
        found = wide(*(argument.double() if _is_narrow(argument) else argument for argument in args), **options)
        return found.float() if target is None else target.copy_(found)


def _is_narrow(argument: object) -> bool:
    return isinstance(argument, Tensor) and argument.dtype == torch.float32 and argument.device.type != "mps"
