"""Accuracy of many runs at once, on every task of each one's stream."""

from collections.abc import Sequence

import torch

from sfao.experiment.evaluation import choose_images, describe_broken_outputs
from sfao.methods.stacked.models import StackedModels
from sfao.streams.stacked_images import StackedImages
from sfao.streams.stream import Stream

#: Images of all runs together in one batch.
ROWS = 2**14


@torch.no_grad()
def evaluate_stack(
    models: StackedModels, streams: Sequence[Stream], on: str, device: torch.device
) -> list[list[float] | str]:
    """Return the accuracies of each run, or what is wrong with a run whose outputs are not finite."""
    accuracies: list[list[float]] = [[] for _ in streams]
    broken: dict[int, str] = {}
    for tasks in zip(*streams, strict=True):
        images = StackedImages([choose_images(task, on) for task in tasks], device)
        order = torch.arange(len(images)).expand(len(tasks), -1)
        correct = torch.zeros(len(tasks), dtype=torch.int64, device=device)
        finite = torch.ones(len(tasks), dtype=torch.bool, device=device)
        for inputs, targets in images.batches(order, max(1, ROWS // len(tasks))):
            logits = models.forward(inputs, training=False)[..., tasks[0].outputs]
            finite &= logits.isfinite().flatten(1).all(1)
            correct += (logits.argmax(2) == targets).sum(1)
        for run, (count, is_finite) in enumerate(zip(correct.tolist(), finite.tolist(), strict=True)):
            accuracies[run].append(count / len(images))
            if not is_finite:
                broken.setdefault(run, describe_broken_outputs(tasks[run]))
    return [broken.get(run, row) for run, row in enumerate(accuracies)]
