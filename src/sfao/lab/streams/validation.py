"""The validation split: training examples for tuning, in place of the test set."""

import torch
from torch import Tensor

from sfao.lab.streams.seeding import make_generator


def draw_validation(labels: Tensor, fraction: float, seed: int) -> Tensor:
    """Draw a mask over the training examples: the given fraction of every class, at random.

    It depends on the labels, the fraction and the seed, not on the stream: an example that is held out of one
    task is held out of all.
    """
    if not 0 <= fraction < 1:
        raise ValueError(f"`validation` must be in [0, 1), got {fraction!r}")
    mask = torch.zeros(len(labels), dtype=torch.bool)
    if fraction == 0:
        return mask
    for label in sorted(set(labels.tolist())):
        examples = (labels == label).nonzero().flatten()
        count = round(fraction * len(examples))
        if not 0 < count < len(examples):
            raise ValueError(
                f"`validation` must hold out some and leave some of the {len(examples)} training examples "
                f"of class {label}, got {fraction!r}"
            )
        order = torch.randperm(len(examples), generator=make_generator(seed, f"validation {label}"))
        mask[examples[order[:count]]] = True
    return mask
