"""Torch's default generators, which dropout draws from: layers accept no other."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sfao.lab.streams.seeding import make_generator


def model_generators(device: torch.device) -> list[torch.Generator]:
    """Return the generators that a model on this device draws from."""
    if device.type != "cuda":
        return [torch.default_generator]
    index = torch.cuda.current_device() if device.index is None else device.index
    return [torch.default_generator, torch.cuda.default_generators[index]]


@contextmanager
def seed_generators(seed: int, device: torch.device) -> Iterator[list[torch.Generator]]:
    """Seed these generators for a run, and restore their states afterwards."""
    generators = model_generators(device)
    before = [generator.get_state() for generator in generators]
    for generator in generators:
        generator.manual_seed(make_generator(seed, "layers").initial_seed())
    try:
        yield generators
    finally:
        for generator, state in zip(generators, before, strict=True):
            generator.set_state(state)
