"""Permuted streams: every task has all the classes, seen through a pixel permutation of its own."""

from collections.abc import Sequence

import torch
from torch import Tensor

from sfao.checks import check_choice, check_count
from sfao.streams.seeding import seeded
from sfao.streams.stream import (
    SCENARIOS,
    ImageDataset,
    Stream,
    head,
    head_size,
    input_shape,
    make_task,
    task_order,
)
from sfao.streams.validation import held_out


def permuted(
    dataset: ImageDataset,
    *,
    tasks: int = 3,
    scenario: str = "domain",
    seed: int = 0,
    order: str | Sequence[int] | None = None,
    validation: float = 0.0,
    identity_first: bool = False,
) -> Stream:
    """Tasks that permute the pixels, all channels alike; permutation n does not depend on how many tasks there are.

    Every task is permuted, as in the paper (p1, p2, p3) and its released code, unless `identity_first` leaves the
    first one as it is. In `class`, the classes of every permutation are classes of their own. `validation` is
    the fraction of every class's training examples to hold out, the same examples in every task.
    """
    check_choice("scenario", scenario, SCENARIOS)
    check_count("tasks", tasks)
    shape = input_shape(dataset)
    held = held_out(dataset.train_labels, validation, seed)
    built = []
    for number in range(tasks):
        unpermuted = identity_first and number == 0
        label_of = torch.arange(dataset.classes) + (number * dataset.classes if scenario == "class" else 0)
        built.append(
            make_task(
                dataset,
                "identity" if unpermuted else f"permutation {number + 1}",
                head(scenario, number, tasks, dataset.classes),
                label_of,
                held,
                None if unpermuted else _permutation(shape[1] * shape[2], number, seed),
            )
        )
    return Stream(
        name=f"permuted-{dataset.name}",
        scenario=scenario,
        tasks=tuple(built[place] for place in task_order(order, tasks, seed)),
        outputs=head_size(scenario, tasks, dataset.classes),
        input_shape=shape,
    )


def _permutation(pixels: int, number: int, seed: int) -> Tensor:
    return torch.randperm(pixels, generator=seeded(seed, f"permutation {number}"))
