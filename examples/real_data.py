"""What the examples share: real images in tasks, an accuracy, a line of results. Not an example itself."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from sfao.lab.data.dataset import load_dataset
from sfao.lab.data.errors import MissingData
from sfao.lab.streams.seeding import slice_dataset
from sfao.lab.streams.split import split
from sfao.lab.streams.stream import Stream, Task

#: Small networks gain nothing from more threads, and sums on more are rounded in other places.
torch.set_num_threads(1)


def read_stream(name: str, *, classes: int, tasks: int, images: int, scenario: str = "domain") -> Stream:
    """Return the first tasks of a data set, of so many classes each, with so many training images per class.

    `--slice 20` on the command line takes 20 instead.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--slice", type=int, default=images, help=f"training images per class (default {images})")
    wanted = parser.parse_args().slice
    try:
        dataset = load_dataset(name)
    except MissingData:
        print(f"{name} is not in $SFAO_DATA (`sfao data get {name}` fetches it): on the embedded digits instead")
        dataset = load_dataset("mnist-5k")
    share = min(1.0, wanted * dataset.classes / len(dataset.train_labels))
    stream = split(slice_dataset(dataset, share), tasks=dataset.classes // classes, scenario=scenario)
    stream = replace(stream, tasks=stream.tasks[:tasks])
    print(f"{dataset.name}: {len(stream)} tasks of {classes} classes, {sum(len(task.train) for task in stream)} images")
    return stream


@torch.no_grad()
def accuracy(model: Callable[[Tensor], Tensor], task: Task) -> float:
    """Return the accuracy on the test images of a task, by its own outputs; a module is in eval mode meanwhile."""
    modes = [(part, part.training) for part in model.modules()] if isinstance(model, nn.Module) else []
    for part, _ in modes:
        part.training = False
    right = sum(
        int((model(inputs)[:, task.outputs].argmax(1) == labels).sum()) for inputs, labels in task.test.batches(500)
    )
    for part, mode in modes:
        part.training = mode
    return right / len(task.test)


def tell(name: str, learned: Sequence[float], final: Sequence[float]) -> None:
    """Print the accuracies of all tasks, right after each was learned and at the end, and what was forgotten."""
    forgotten = sum(before - after for before, after in zip(learned[:-1], final[:-1], strict=True)) / (len(final) - 1)
    before, after = (" ".join(f"{value:.2f}" for value in values) for values in (learned, final))
    mean = sum(final) / len(final)
    print(f"{name:26} when learned {before}   at the end {after}   mean {mean:.3f}, forgotten {forgotten:.3f}")
