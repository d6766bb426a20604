"""Drift of every layer's outputs on all past examples, next to what DriftBound allows.

    SFAO_DATA=DATA python benchmarks/true_drift.py

DriftBound sees drawn input rows, and one value for the directions in which inputs vary least. This measures, in float64
and from the layers' outputs, what it promises: after each task, the drift since the last consolidation relative to the
allowance. 1 is the limit. Every task has 2,000 training images, and 600 others are consolidated.
"""

import os
import sys
from copy import deepcopy
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sfao.drift_bound import DriftBound

sys.path.insert(0, str(Path(__file__).parent))
from drift_streams import OPTIMIZERS, STREAMS, make_batches, read_digits

PAST, EPOCHS, TASKS = 600, 5, 4


def read_inputs(model: nn.Module, layers: list[str], images: Tensor) -> dict[str, Tensor]:
    """Return the inputs of these layers, in eval mode."""
    found: dict[str, Tensor] = {}
    handles = [
        model.get_submodule(name).register_forward_pre_hook(lambda _, x, name=name: found.update({name: x[0]}))
        for name in layers
    ]
    model.eval()
    with torch.no_grad():
        model(images)
    model.train()
    for handle in handles:
        handle.remove()
    return found


@torch.no_grad()
def measure_drift(now: nn.Module, before: nn.Module, tasks: list[Tensor]) -> float:
    """Return sqrt(E |W x - W* x|^2 / E |W* x|^2), a mean over the inputs of a task, summed over tasks."""
    now, before = deepcopy(now).double().eval(), deepcopy(before).double().eval()
    outputs = [(now(x.double()), before(x.double())) for x in tasks]
    drift = sum(float((new - old).square().mean()) for new, old in outputs)
    return (drift / sum(float(old.square().mean()) for _, old in outputs)) ** 0.5


def run(name: str, optimizer_name: str) -> list[dict[str, float]]:
    """Return, for every task but the first, the drift of each layer as a share of its allowance."""
    train, test = (read_digits(Path(os.environ["SFAO_DATA"]), part) for part in ("train", "t10k"))
    torch.manual_seed(0)
    model = STREAMS[name].make_model()
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    bound = DriftBound(model).attach(optimizer)
    past: list[dict[str, Tensor]] = []
    shares, anchor = [], deepcopy(model)
    for number, task in enumerate(STREAMS[name].make_tasks(train, test)[:TASKS]):

        def loss(logits: Tensor, labels: Tensor, outputs: int = task.outputs) -> Tensor:
            return cross_entropy(logits[:, :outputs], labels)

        generator = torch.Generator().manual_seed(number)
        for _ in range(EPOCHS):
            for x, y in make_batches(task.train.take(slice(PAST, PAST + 2000)), generator):
                optimizer.zero_grad()
                loss(model(x), y).backward()
                optimizer.step()
        bound.apply()
        if number:
            pairs = {layer: (model.get_submodule(layer), anchor.get_submodule(layer)) for layer in bound.memory}
            allowed = 0.1 / number**0.5
            shares.append({n: measure_drift(*own, [x[n] for x in past]) / allowed for n, own in pairs.items()})
        own = task.train.take(slice(PAST))
        bound.consolidate([(own.images, own.labels)], loss)
        anchor = deepcopy(model)
        past.append(read_inputs(model, list(bound.memory), own.images))
    return shares


def main() -> None:
    print("stream         optimizer     largest share of the allowance, by layer")
    for name in ("split", "rotations", "rotations-cnn"):
        for optimizer in ("momentum .05", "AdamW"):
            shares = run(name, optimizer)
            worst = {layer: max(task[layer] for task in shares) for layer in shares[0]}
            print(f"{name:14} {optimizer:13} {', '.join(f'{layer}: {share:.2f}' for layer, share in worst.items())}")


if __name__ == "__main__":
    main()
