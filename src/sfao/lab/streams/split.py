"""Split streams: every task has its own classes."""

from collections.abc import Sequence

import torch

from sfao.checks import check_choice, check_count
from sfao.lab.data.dataset import Dataset
from sfao.lab.streams.seeding import draw_validation
from sfao.lab.streams.stream import SCENARIOS, Stream, count_outputs, make_task, order_tasks, select_outputs

#: The usual number of tasks, by the number of classes: MNIST and CIFAR-10, CIFAR-100, Tiny ImageNet.
USUAL_TASKS = {10: 5, 100: 10, 200: 10}


def split(
    dataset: Dataset,
    *,
    tasks: int | None = None,
    scenario: str = "domain",
    seed: int = 0,
    order: str | Sequence[int] | None = None,
    validation: float = 0.0,
) -> Stream:
    """Return tasks of equally many classes: 0/1, 2/3, ...

    Args:
        dataset: the images.
        tasks: the number of tasks.
        scenario: domain or task, where labels count from 0 within a task, or class, where they are the data set's.
        seed: decides order and validation.
        order: "random", or the places of the tasks, which keep their classes and their outputs.
        validation: the fraction of every class's training examples to hold out.
    """
    check_choice("scenario", scenario, SCENARIOS)
    count = USUAL_TASKS.get(dataset.classes) if tasks is None else tasks
    if count is None:
        raise ValueError(f"`tasks` must be given for a data set of {dataset.classes} classes, got None")
    check_count("tasks", count)
    size, rest = divmod(dataset.classes, count)
    if rest or not size:
        raise ValueError(f"`tasks` must divide the {dataset.classes} classes of {dataset.name!r} evenly, got {count}")
    if size == 1 and scenario != "class":  # a head of one output is always right
        raise ValueError(f"`tasks` must leave at least 2 classes a task in scenario {scenario!r}, got {count}")
    mask = draw_validation(dataset.train_labels, validation, seed)
    built = []
    for number in range(count):
        own = torch.arange(number * size, (number + 1) * size)
        label_of = torch.full((dataset.classes,), -1)
        label_of[own] = own if scenario == "class" else torch.arange(size)
        name = "/".join(map(str, own.tolist())) if size <= 4 else f"{own[0]}-{own[-1]}"
        built.append(make_task(dataset, name, select_outputs(scenario, number, count, size), label_of, mask))
    places = order_tasks(order, count, seed)
    return Stream(
        name=f"split-{dataset.name}",
        scenario=scenario,
        tasks=tuple(built[place] for place in places),
        outputs=count_outputs(scenario, count, size),
        input_shape=tuple(dataset.train_images.shape[1:]),
        order=places,
    )
