"""A slice of a data set: the same few of every class, for a quick look at what a whole run would do."""

from dataclasses import replace
from math import ceil

import torch

from sfao.lab.data.dataset import Dataset
from sfao.lab.streams.seeding import make_generator


def slice_dataset(dataset: Dataset, fraction: float) -> Dataset:
    """Keep the given fraction of every class's training examples, at least one of each; the test set stays whole.

    The slice is the same for every seed of a run, and a smaller one is part of a larger one.
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"`fraction` must be in (0, 1], got {fraction!r}")
    if fraction == 1:
        return dataset
    labels = dataset.train_labels
    chosen = []
    for label in sorted(set(labels.tolist())):
        examples = (labels == label).nonzero().flatten()
        order = torch.randperm(len(examples), generator=make_generator(0, f"slice {label}"))
        chosen.append(examples[order[: ceil(fraction * len(examples))]])
    indices = torch.cat(chosen).sort().values
    return replace(dataset, train_images=dataset.train_images[indices], train_labels=labels[indices], complete=False)
