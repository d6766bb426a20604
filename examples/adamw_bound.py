"""AdamW alone, with a DriftBound behind it, and with the paper's gate in front: five tasks of two digits each.

    python examples/adamw_bound.py

Both need two lines: attach to the optimizer, and consolidate at the end of a task. The memory is saved with the
optimizer's state. All tasks share the same two outputs.
"""

from typing import Any

import torch
from torch.nn.functional import cross_entropy

import sfao
from real_data import accuracy, read_stream, tell
from sfao.lab.models import mlp
from sfao.lab.streams.stream import Stream

EPOCHS, BATCH = 3, 32


def learn(stream: Stream, kind: Any) -> tuple[list[float], list[float]]:
    """Learn the tasks in turn; return the accuracy on each when it was learned, and at the end."""
    torch.manual_seed(0)
    model = mlp(stream.input_shape, stream.outputs, hidden=100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    memory = None if kind is None else kind(model).attach(optimizer)
    order, learned = torch.Generator().manual_seed(0), []
    for task in stream:
        for _ in range(EPOCHS):
            for images, labels in task.train.batches(BATCH, order):
                optimizer.zero_grad()
                cross_entropy(model(images), labels).backward()
                optimizer.step()
        if memory is not None:
            memory.consolidate(task.train.batches(BATCH, order), cross_entropy)
        learned.append(accuracy(model, task))
    if memory is not None:
        print(f"{kind.__name__} holds {memory.memory_bytes / 1e6:.2f} MB and no image")
    return learned, [accuracy(model, task) for task in stream]


def main() -> None:
    stream = read_stream("mnist", classes=2, tasks=5, images=400)
    tell("AdamW", *learn(stream, None))
    tell("AdamW and Gate", *learn(stream, sfao.Gate))
    tell("AdamW and DriftBound", *learn(stream, sfao.DriftBound))


if __name__ == "__main__":
    main()
