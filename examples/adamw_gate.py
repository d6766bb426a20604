"""AdamW as it is, and with a gate in front: five tasks of two digits each, with the same two outputs.

    python examples/adamw_gate.py

The gate needs three lines: it is attached to the optimizer, told the end of a task, and saved with the optimizer's
state. It softens what AdamW has really added to the weights, not the gradient.
"""

import torch
from torch.nn.functional import cross_entropy

import sfao
from real_data import accuracy, read_stream, tell
from sfao.models import mlp
from sfao.streams.stream import Stream

EPOCHS, BATCH = 3, 32


def learn(stream: Stream, gated: bool) -> tuple[list[float], list[float]]:
    """Learn the tasks in turn; return the accuracy on each when it was learnt, and at the end."""
    torch.manual_seed(0)
    model = mlp(stream.input_shape, stream.outputs, hidden=100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    gate = sfao.Gate(sfao.layer_groups(model)).attach(optimizer) if gated else None
    order, learnt = torch.Generator().manual_seed(0), []
    for task in stream:
        for _ in range(EPOCHS):
            for images, labels in task.train.batches(BATCH, order):
                optimizer.zero_grad()
                cross_entropy(model(images), labels).backward()
                optimizer.step()
        if gate is not None:
            gate.consolidate(model, task.train.batches(BATCH, order))
        learnt.append(accuracy(model, task))
    if gate is not None:
        print(f"the gate holds {gate.memory_bytes / 1e6:.2f} MB and no image")
    return learnt, [accuracy(model, task) for task in stream]


def main() -> None:
    stream = read_stream("mnist", classes=2, tasks=5, images=400)
    tell("AdamW", *learn(stream, gated=False))
    tell("AdamW behind the gate", *learn(stream, gated=True))


if __name__ == "__main__":
    main()
