"""Digests of files, written as the algorithm and its hexadecimal value: "sha256:440f..."."""

import hashlib
from collections.abc import Iterable
from pathlib import Path


def compute_digest(path: Path, like: str = "sha256") -> str:
    """Return the digest of a file, by the same algorithm as the digest `like`."""
    algorithm = like.partition(":")[0]
    with path.open("rb") as file:
        # MD5 is what some publishers give: it finds damage, it does not stop a forger.
        digest = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return f"{algorithm}:{digest.hexdigest()}"


def digest_text(text: str) -> str:
    """Return the digest of a text."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def list_digests(folder: Path, paths: Iterable[Path]) -> str:
    """Return one line per file, its digest and its path below the folder, in the order given."""
    return "".join(f"{compute_digest(path)}  {path.relative_to(folder).as_posix()}\n" for path in paths)
