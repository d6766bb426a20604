"""Memories full of random directions: what a step costs depends on their number, not on where they point."""

import torch

from sfao.gating._products import PatternProducts
from sfao.gating.memory import Memory


def fill_memory(memory: Memory, count: int, device: torch.device, seed: int = 0) -> None:
    """Let a memory hold `count` random unit directions and no others, as if the first task had offered them."""
    if not 0 < count <= memory.capacity:
        raise ValueError(f"`count` must be from 1 to the capacity ({memory.capacity}), got {count}")
    generator = torch.Generator(device).manual_seed(seed)
    directions = [
        [
            torch.randn(count, *shape, dtype=block.dtype, device=device, generator=generator)
            for shape in block.slot_shapes()
        ]
        for block in memory.blocks
    ]
    memory.hold(directions, device)
    norms = PatternProducts((True,) * len(memory.channels_last), count).inverse_norms(memory.blocks)
    for block in memory.blocks:
        block.scale_(norms)
