"""Random choices of a stream: one seed, an independent generator for every purpose."""

from dataclasses import replace
from hashlib import sha256
from math import ceil

import torch
from torch import Tensor

from sfao.lab.data.dataset import Dataset


def make_generator(seed: int, purpose: str) -> torch.Generator:
    """Return a generator for one purpose, so that no choice shifts when another one is added or left out."""
    digest = sha256(f"{seed}: {purpose}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big"))


def slice_dataset(dataset: Dataset, fraction: float) -> Dataset:
    """Return a data set with a fraction of every class's training examples, at least one; the test set stays whole.

    The slice is the same for every seed of a run, and a smaller one is part of a larger one.
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"`fraction` must be in (0, 1], got {fraction!r}")
    if fraction == 1:
        return dataset
    labels = dataset.train_labels
    chosen = []
    for label in labels.unique().tolist():
        examples = (labels == label).nonzero().flatten()
        order = torch.randperm(len(examples), generator=make_generator(0, f"slice {label}"))
        chosen.append(examples[order[: ceil(fraction * len(examples))]])
    indices = torch.cat(chosen).sort().values
    return replace(dataset, train_images=dataset.train_images[indices], train_labels=labels[indices], complete=False)


def draw_validation(labels: Tensor, fraction: float, seed: int) -> Tensor:
    """Draw a mask over the training examples: the given fraction of every class.

    It depends on the labels, the fraction and the seed alone: an example held out of one task is held out of all.
    """
    if not 0 <= fraction < 1:
        raise ValueError(f"`validation` must be in [0, 1), got {fraction!r}")
    mask = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique().tolist() if fraction else ():
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
