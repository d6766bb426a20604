"""Matrix products as exact as float32, where a user has lowered their precision for the model."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

#: Names of precisions that round no more than float32 does.
EXACT = ("ieee", "none")
#: From torch 2.9 on every backend has a precision of its own, and the older way to ask fails once the new one was used.
BACKENDS: tuple[Any, ...] = (
    (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]
    if hasattr(torch.backends.cuda.matmul, "fp32_precision")
    else ()
)


@contextmanager
def exact_products() -> Iterator[None]:
    """Multiply as exactly as float32 can, and afterwards as before."""
    if not BACKENDS:
        precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(precision)
        return
    lowered = [(backend, backend.fp32_precision) for backend in BACKENDS if backend.fp32_precision not in EXACT]
    for backend, _ in lowered:
        backend.fp32_precision = "ieee"
    try:
        yield
    finally:
        for backend, precision in lowered:
            backend.fp32_precision = "none"
            if backend.fp32_precision != precision:  # else it follows `torch.backends.fp32_precision`, now as later
                backend.fp32_precision = precision
