"""Split streams: every task has its own classes."""

from collections.abc import Sequence

import torch

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

#: The usual number of tasks, by the number of classes: MNIST and CIFAR-10, CIFAR-100, Tiny ImageNet.
USUAL_TASKS = {10: 5, 100: 10, 200: 10}


def split(
    dataset: ImageDataset,
    *,
    tasks: int | None = None,
    scenario: str = "domain",
    seed: int = 0,
    order: str | Sequence[int] | None = None,
    validation: float = 0.0,
    shuffle_classes: bool = False,
) -> Stream:
    """Make tasks of equally many classes: 0/1, 2/3, ... or, with `shuffle_classes`, drawn by the seed.

    Labels count from 0 within a task in `domain` and `task`, and are the data set's own in `class`. `order` moves
    whole tasks, which keep their classes and their outputs. `validation` is the fraction of every class's training
    examples to hold out.
    """
    check_choice("scenario", scenario, SCENARIOS)
    count = _get_usual_tasks(dataset) if tasks is None else tasks
    size = _count_classes_per_task(dataset, count, scenario)
    classes = _order_classes(dataset.classes, seed, shuffle_classes)
    validation_mask = draw_validation(dataset.train_labels, validation, seed)
    built = []
    for number in range(count):
        own = classes[number * size : (number + 1) * size]
        label_of = torch.full((dataset.classes,), -1)
        label_of[own] = torch.tensor(own) if scenario == "class" else torch.arange(size)
        built.append(
            make_task(
                dataset, _name_classes(own), select_outputs(scenario, number, count, size), label_of, validation_mask
            )
        )
    places = order_tasks(order, count, seed)
    return Stream(
        name=f"split-{dataset.name}",
        scenario=scenario,
        tasks=tuple(built[place] for place in places),
        outputs=count_outputs(scenario, count, size),
        input_shape=get_input_shape(dataset),
        order=tuple(places),
    )


def _get_usual_tasks(dataset: ImageDataset) -> int:
    if dataset.classes not in USUAL_TASKS:
        raise ValueError(f"`tasks` must be given for a data set of {dataset.classes} classes, got None")
    return USUAL_TASKS[dataset.classes]


def _count_classes_per_task(dataset: ImageDataset, tasks: int, scenario: str) -> int:
    check_count("tasks", tasks)
    if dataset.classes % tasks:
        raise ValueError(f"`tasks` must divide the {dataset.classes} classes of {dataset.name!r} evenly, got {tasks}")
    # A head of one output is always right, so nothing could be learnt or forgotten.
    if dataset.classes == tasks and scenario != "class":
        raise ValueError(f"`tasks` must leave at least 2 classes a task in scenario {scenario!r}, got {tasks}")
    return dataset.classes // tasks


def _order_classes(classes: int, seed: int, shuffle: bool) -> list[int]:
    if not shuffle:
        return list(range(classes))
    return torch.randperm(classes, generator=make_generator(seed, "class order")).tolist()


def _name_classes(classes: Sequence[int]) -> str:
    """Return a name such as 0/1, 20-39, or 7/3/... (20) for many classes out of order."""
    if len(classes) <= 4:
        return "/".join(map(str, classes))
    if list(classes) == list(range(classes[0], classes[0] + len(classes))):
        return f"{classes[0]}-{classes[-1]}"
    return f"{classes[0]}/{classes[1]}/... ({len(classes)})"
