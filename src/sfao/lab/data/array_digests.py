"""Digests of decoded arrays: the same data have the same digest, whichever files they came from."""

import json
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfao.lab.data.formats.file_layout import Arrays

#: {array: {"shape": ..., "kind": ..., "digest": ...}}
Checks = dict[str, dict[str, Any]]


def digest_arrays(arrays: Arrays) -> str:
    """Return a short digest that is equal where all values, shapes and kinds are."""
    return digest_checks(make_checks(arrays))


def make_checks(arrays: Arrays) -> Checks:
    """Return the shape, the kind and the digest of each array."""
    return {
        name: {"shape": list(array.shape), "kind": array.dtype.str, "digest": _digest_values(array)}
        for name, array in arrays.items()
    }


def digest_checks(checks: Checks) -> str:
    """Return the short digest of arrays with these checks."""
    return sha256(json.dumps(checks).encode()).hexdigest()[:16]


def _digest_values(array: NDArray[np.generic]) -> str:
    return f"sha256:{sha256(np.ascontiguousarray(array).data).hexdigest()}"
