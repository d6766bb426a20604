"""The arrays of a data set, and digests that depend on their values alone."""

import json
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfao.lab.data.errors import DataError

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Arrays:
    """Images as (N, C, H, W) bytes, labels as integers from 0."""

    train_images: Images
    train_labels: Labels
    test_images: Images
    test_labels: Labels

    def items(self) -> list[tuple[str, NDArray[Any]]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]


def digest_values(array: NDArray[Any]) -> str:
    """Return the SHA-256 of the values of an array."""
    return f"sha256:{sha256(np.ascontiguousarray(array).data).hexdigest()}"


def digest_arrays(arrays: Arrays, digests: dict[str, str] | None = None) -> str:
    """Return a short digest of all values, shapes and types; `digests` are those of the values, if they are known."""
    digests = digests or {name: digest_values(array) for name, array in arrays.items()}
    # Records hold this digest, so the text below never changes.
    checks = {
        name: {"shape": list(array.shape), "kind": array.dtype.str, "digest": digests[name]}
        for name, array in arrays.items()
    }
    return sha256(json.dumps(checks).encode()).hexdigest()[:16]


def check_labels(path: Path, labels: NDArray[np.integer[Any]], classes: int) -> Labels:
    """Return the labels as int64; a DataError names the first one that is out of range."""
    outside = labels[(labels < 0) | (labels >= classes)]
    if outside.size:
        raise DataError(f"{path}: labels must be in [0, {classes - 1}], got {outside[0]}")
    return labels.astype(np.int64)


def check_same_count(images_path: Path, images: Images, labels_path: Path, labels: Labels) -> None:
    """Raise a DataError unless there are images, with one label for each."""
    if not len(images):
        raise DataError(f"{images_path}: must hold at least one image, got none")
    if len(images) != len(labels):
        raise DataError(
            f"{labels_path}: must hold a label for each of the {len(images)} images of {images_path.name}, "
            f"got {len(labels)}"
        )
