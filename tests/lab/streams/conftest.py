"""A data set small enough to check by hand: pixel values and labels that tell every image apart."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sfao.lab.data.dataset import Dataset


@pytest.fixture(scope="session")
def tiny() -> Callable[..., Dataset]:
    def make(classes: int = 10, train: int = 10, test: int = 4, shape: tuple[int, ...] = (1, 3, 4)) -> Dataset:
        """So many training and test images a class, in a scrambled order, with random pixels."""
        generator = torch.Generator().manual_seed(classes)

        def images(count: int) -> Tensor:
            return torch.randint(0, 256, (count * classes, *shape), dtype=torch.uint8, generator=generator)

        def labels(count: int) -> Tensor:
            return torch.arange(classes).repeat(count)[torch.randperm(count * classes, generator=generator)]

        channels = shape[0]
        return Dataset(
            name="tiny",
            train_images=images(train),
            train_labels=labels(train),
            test_images=images(test),
            test_labels=labels(test),
            classes=classes,
            mean=(0.2, 0.4, 0.6)[:channels],
            std=(0.5, 0.25, 0.3)[:channels],
        )

    return make
