"""How exactly torch multiplies matrices of float32, which a user may have lowered for the model."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

EXACT = ("ieee", "none")


@contextmanager
def exact_products() -> Iterator[None]:
    """Products as exact as float32, and afterwards as they were.

    torch 2.9 says so for every backend by itself, and its older way of asking fails where the new one was used.
    """
    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(precision)
        return
    backends = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]
    lowered = [(backend, backend.fp32_precision) for backend in backends if backend.fp32_precision not in EXACT]
    for backend, _ in lowered:
        backend.fp32_precision = "ieee"
    try:
        yield
    finally:
        for backend, precision in lowered:
            backend.fp32_precision = "none"
            if backend.fp32_precision != precision:  # else it follows `torch.backends.fp32_precision`, now as later
                backend.fp32_precision = precision
