"""Digests of plain containers and tensors, to the last bit."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor


def digest(value: Any) -> str:
    """Return a digest of plain containers and tensors."""
    found = sha256()
    _add(found, value)
    return found.hexdigest()


def _add(found: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        found.update(str((value.dtype, tuple(value.shape))).encode())
        # A row, as a scalar cannot be seen as bytes.
        plain = value.detach().cpu().contiguous().reshape(-1)
        found.update(plain.view(torch.uint8).numpy() if value.numel() else b"")
    elif isinstance(value, Mapping):
        found.update(f"{{{len(value)}".encode())
        for key, of_key in value.items():
            found.update(f"{key!r}:".encode())
            _add(found, of_key)
    elif isinstance(value, (list, tuple)):
        found.update(f"[{len(value)}".encode())
        for part in value:
            _add(found, part)
    else:
        found.update(f"{value!r};".encode())
