"""Digests of files, written as the algorithm and its hexadecimal value: "sha256:440f..."."""

import hashlib
from pathlib import Path


def file_digest(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        # MD5 is what some publishers give: it finds damage, it does not stop a forger.
        digest = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return f"{algorithm}:{digest.hexdigest()}"


def matches(path: Path, digest: str) -> bool:
    return file_digest(path, digest.partition(":")[0]) == digest
