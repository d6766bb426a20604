"""Digests of files, written as the algorithm and its hexadecimal value: "sha256:440f..."."""

import hashlib
from pathlib import Path


def compute_digest(path: Path, like: str) -> str:
    """Return the digest of a file, by the same algorithm as the digest `like`."""
    algorithm = like.partition(":")[0]
    with path.open("rb") as file:
        # MD5 is what some publishers give: it finds damage, it does not stop a forger.
        digest = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return f"{algorithm}:{digest.hexdigest()}"
