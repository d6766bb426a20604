"""Permuted streams: every task has all the classes, with its own permutation of the pixels."""

from collections.abc import Sequence

import torch
from torch import Tensor

from sfao.checks import check_choice, check_count
from sfao.lab.streams.seeding import make_generator
from sfao.lab.streams.stream import (
    SCENARIOS,
    ImageDataset,
    Stream,
    count_outputs,
    get_input_shape,
    make_task,
    order_tasks,
    select_outputs,
)
from sfao.lab.streams.validation import draw_validation

#: The number of tasks in the paper.
USUAL_TASKS = 3


def permute(
    dataset: ImageDataset,
    *,
    tasks: int | None = None,
    scenario: str = "domain",
    seed: int = 0,
    order: str | Sequence[int] | None = None,
    validation: float = 0.0,
    identity_first: bool = False,
) -> Stream:
    """Make tasks that permute the pixels, all channels alike; permutation n is the same for any number of tasks.

    Every task is permuted, as in the paper (p1, p2, p3) and its released code, unless `identity_first` leaves the
    first one as it is. In `class`, the classes of every permutation count as different classes. `validation` is
    the fraction of every class's training examples to hold out, the same examples in every task.
    """
    check_choice("scenario", scenario, SCENARIOS)
    tasks = USUAL_TASKS if tasks is None else tasks
    check_count("tasks", tasks)
    shape = get_input_shape(dataset)
    validation_mask = draw_validation(dataset.train_labels, validation, seed)
    built = []
    for number in range(tasks):
        unpermuted = identity_first and number == 0
        label_of = torch.arange(dataset.classes) + (number * dataset.classes if scenario == "class" else 0)
        built.append(
            make_task(
                dataset,
                "identity" if unpermuted else f"permutation {number + 1}",
                select_outputs(scenario, number, tasks, dataset.classes),
                label_of,
                validation_mask,
                None if unpermuted else _draw_permutation(shape[1] * shape[2], number, seed),
            )
        )
    places = order_tasks(order, tasks, seed)
    return Stream(
        name=f"permuted-{dataset.name}",
        scenario=scenario,
        tasks=tuple(built[place] for place in places),
        outputs=count_outputs(scenario, tasks, dataset.classes),
        input_shape=shape,
        order=tuple(places),
    )


def _draw_permutation(pixels: int, number: int, seed: int) -> Tensor:
    return torch.randperm(pixels, generator=make_generator(seed, f"permutation {number}"))
