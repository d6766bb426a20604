"""Random numbers of a stream: one seed, an independent generator for every purpose."""

from hashlib import sha256

import torch


def make_generator(seed: int, purpose: str) -> torch.Generator:
    """Make a generator for one purpose, so that no choice shifts when another one is added or left out."""
    digest = sha256(f"{seed}: {purpose}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))
