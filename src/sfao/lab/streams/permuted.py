"""Permuted streams: every task has all the classes, with its own permutation of the pixels."""

from collections.abc import Sequence

import torch

from sfao.checks import check_choice, check_count
from sfao.lab.data.dataset import Dataset
from sfao.lab.streams.seeding import draw_validation, make_generator
from sfao.lab.streams.stream import SCENARIOS, Stream, count_outputs, make_task, order_tasks, select_outputs


def permute(
    dataset: Dataset,
    *,
    tasks: int | None = None,
    scenario: str = "domain",
    seed: int = 0,
    order: str | Sequence[int] | None = None,
    validation: float = 0.0,
) -> Stream:
    """Return tasks that permute the pixels, all channels alike; permutation n is the same for any number of tasks.

    Args:
        dataset: the images.
        tasks: the number of tasks; 3 by default, as in the paper.
        scenario: domain, task, or class, where the classes of every permutation are different classes.
        seed: decides permutations, order and validation.
        order: "random", or the places of the tasks.
        validation: the fraction of every class's training examples to hold out, the same examples in every task.
    """
    check_choice("scenario", scenario, SCENARIOS)
    tasks = 3 if tasks is None else tasks
    check_count("tasks", tasks)
    shape = tuple(dataset.train_images.shape[1:])
    mask = draw_validation(dataset.train_labels, validation, seed)
    built = []
    for number in range(tasks):
        name = f"permutation {number + 1}"
        permutation = torch.randperm(shape[1] * shape[2], generator=make_generator(seed, f"permutation {number}"))
        label_of = torch.arange(dataset.classes) + (number * dataset.classes if scenario == "class" else 0)
        outputs = select_outputs(scenario, number, tasks, dataset.classes)
        built.append(make_task(dataset, name, outputs, label_of, mask, permutation))
    places = order_tasks(order, tasks, seed)
    return Stream(
        name=f"permuted-{dataset.name}",
        scenario=scenario,
        tasks=tuple(built[place] for place in places),
        outputs=count_outputs(scenario, tasks, dataset.classes),
        input_shape=shape,
        order=places,
    )
