"""A memory full of random directions: the cost of a step depends on their number, not on where they point."""

import torch

from sfao.optimizer import SFAO


def fill_memory(optimizer: SFAO, count: int, seed: int = 0) -> None:
    """Store random directions in all layers of an optimizer, as gradients of a first task."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    generator = torch.Generator(parameters[0].device).manual_seed(seed)
    for _ in range(count):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, device=parameter.device, generator=generator)
        optimizer.remember()
    optimizer.zero_grad()
    optimizer.end_task()
