"""The batches of an epoch, in an order that depends on seed, task and epoch alone; augmented if asked for."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from sfao.lab.streams.seeding import make_generator
from sfao.lab.streams.stream import Stream, Task

#: Images, labels, and the outputs that the loss reads.
TaskBatch = tuple[Tensor, Tensor, slice]
#: Pixels that `crop` pads on each side before it crops.
PADDING = 4


def steps_per_epoch(tasks: list[Task], batch_size: int) -> int:
    """Return the number of batches in one pass over these tasks."""
    return sum(-(-len(task.train) // batch_size) for task in tasks)


def epoch_batches(
    tasks: list[Task],
    batch_size: int,
    seed: int,
    label: str,
    device: torch.device,
    start: int,
    augment: Sequence[str] = (),
) -> Iterator[TaskBatch]:
    """Yield the batches of one pass over the training parts of the tasks, from batch `start` on, each of one task.

    The order and the augmentation depend on the arguments alone, so a run that resumes needs no state for them.
    """
    passes = [make_generator(seed, f"{label}, task {number}") for number in range(len(tasks))]
    turns = torch.cat([torch.full((steps_per_epoch([task], batch_size),), n) for n, task in enumerate(tasks)])
    if len(tasks) > 1:
        turns = turns[torch.randperm(len(turns), generator=make_generator(seed, f"{label}, turns"))]
    done = torch.bincount(turns[:start], minlength=len(tasks)).tolist()
    batches = [
        task.train.batches(batch_size, generator, device, start=skipped)
        for task, generator, skipped in zip(tasks, passes, done, strict=True)
    ]
    for number, turn in enumerate(turns[start:].tolist(), start):
        inputs, targets = next(batches[turn])
        if augment:
            inputs = augment_images(inputs, augment, make_generator(seed, f"{label}, augmented batch {number}"))
        yield inputs, targets, tasks[turn].outputs


def augment_images(images: Tensor, augment: Sequence[str], generator: torch.Generator) -> Tensor:
    """Return the images, each flipped at random ("flip") and cropped at random from a padded copy ("crop")."""
    count, channels, height, width = images.shape
    if "flip" in augment:
        flipped = torch.rand(count, generator=generator).lt(0.5).to(images.device)
        images = torch.where(flipped[:, None, None, None], images.flip(-1), images)
    if "crop" in augment:
        corners = torch.randint(2 * PADDING + 1, (2, count, 1), generator=generator).to(images.device)
        rows, columns = (
            corner + torch.arange(size, device=images.device)
            for corner, size in zip(corners, (height, width), strict=True)
        )
        every = torch.arange(count, device=images.device)[:, None, None, None]
        channel = torch.arange(channels, device=images.device)[None, :, None, None]
        images = pad(images, [PADDING] * 4)[every, channel, rows[:, None, :, None], columns[:, None, None, :]]
    return images


def check_augmentable(stream: Stream) -> None:
    """Raise a ValueError if the inputs of a stream are no images, or their pixels are permuted."""
    if len(stream.input_shape) != 3 or min(stream.input_shape[1:]) < 2:
        raise ValueError(f"`augment` must be left out for inputs that are no images, got shape {stream.input_shape}")
    if any(task.train.permutation is not None for task in stream):
        raise ValueError(f"`augment` must be left out with {stream.name}, whose pixels are permuted")
