"""Memories full of random directions or axes: what a step costs depends on their number, not on where they point."""

import torch

from sfao.gating._products import PatternProducts
from sfao.gating.input_moments import PROBES
from sfao.gating.memory import Memory
from sfao.gating.subspace import Subspace
from sfao.optim._host_path import as_matrix
from sfao.optim.layers import Layer


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


def fill_spaces(layer: Layer, axes: int, device: torch.device, seed: int = 0) -> None:
    """Let a layer remember random inputs along so many axes, or as many as it has, as if after a first task.

    Parameters that are no matrix, of a BatchNorm say, have no inputs to remember.
    """
    generator = torch.Generator(device).manual_seed(seed)
    spaces, first = [], 0
    for known in layer.spaces:
        parameters = layer.parameters[first : first + len(known.layout.columns)]
        first += len(parameters)
        space = Subspace(known.layout)
        if parameters[0].ndim > 1:
            _fill_space(space, min(axes, known.layout.width), device, generator)
            weights = [as_matrix(parameter.detach(), known.layout.rows) for parameter in parameters]
            space.answers = space.answer(weights)
        spaces.append(space)
    layer.set_spaces(spaces)


def _fill_space(space: Subspace, count: int, device: torch.device, generator: torch.Generator) -> None:
    """Give a space random axes with moments that fall as 1, 1/2, 1/3, ..., and probes with these moments."""
    width = space.layout.width
    drawn = torch.randn(width, count, device=device, generator=generator)
    space.set_axes(torch.linalg.qr(drawn)[0].T)
    space.moments = 1 / torch.arange(1, count + 1, device=device).to(space.moments.dtype)
    space.mean_moment = float(space.moments.sum()) / width
    coordinates = torch.randn(PROBES, count, device=device, generator=generator)
    space.probes = coordinates * space.moments.sqrt().float() @ space.axes
