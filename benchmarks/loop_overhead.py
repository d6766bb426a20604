"""The cost of the laboratory's loop over a bare PyTorch loop on the same tensors.

    python benchmarks/loop_overhead.py [--rounds 7]

MLP 784-256-2, batch 32, SGD, telemetry on; 3000 real digits of the embedded set repeated to 12000. Both loops
take turns in one process; the ratio of the medians is what counts.
"""

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from sfao.lab.data.dataset import Dataset, load_dataset
from sfao.lab.models import build_model
from sfao.lab.run.config import configure
from sfao.lab.run.loop import Run

EXAMPLES = 12000


def repeat_images(dataset: Dataset) -> Dataset:
    """Return twelve thousand training images of one task, as many as a task of Split MNIST has."""
    pick = torch.arange(EXAMPLES) % len(dataset.train_labels)
    return replace(dataset, train_images=dataset.train_images[pick], train_labels=dataset.train_labels[pick])


def time_laboratory(dataset: Dataset) -> float:
    config = configure("split-mnist-5k", "sgd", settings={"tasks": 1, "epochs": 1, "batch_size": 32, "lr": 1e-3})
    with tempfile.TemporaryDirectory() as folder:
        run = Run(config, dataset, Path(folder))
        record = run.execute()
    return record.step_ms


def time_bare_loop(dataset: Dataset) -> float:
    images = dataset.train_images.flatten(1).float() / 255
    labels = dataset.train_labels
    model = build_model("mlp", (1, 28, 28), 10, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    order = torch.randperm(EXAMPLES)
    images, labels = images[order], labels[order]
    start = time.perf_counter()
    for first in range(0, EXAMPLES, 32):
        optimizer.zero_grad()
        cross_entropy(model(images[first : first + 32]), labels[first : first + 32]).backward()
        optimizer.step()
    return 1e3 * (time.perf_counter() - start) / -(-EXAMPLES // 32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="how often each loop is timed (default 7)")
    rounds = parser.parse_args().rounds
    dataset = repeat_images(load_dataset("mnist-5k"))
    time_laboratory(dataset), time_bare_loop(dataset)
    times = [(time_laboratory(dataset), time_bare_loop(dataset)) for _ in range(rounds)]
    ours, theirs = (statistics.median(column) for column in zip(*times, strict=True))
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, median of {rounds} epochs")
    print(f"bare loop    {theirs:.3f} ms a step")
    print(f"laboratory   {ours:.3f} ms a step, {ours / theirs:.2f}x")


if __name__ == "__main__":
    main()
