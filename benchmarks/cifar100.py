"""CIFAR-100 in ten tasks of ten classes with one head per task: an optimizer alone and with DriftBound, on a GPU.

    SFAO_DATA=DATA python benchmarks/cifar100.py alexnet adamw --tolerance 0.1 --json FILE
    SFAO_DATA=DATA python benchmarks/cifar100.py resnet-18 momentum --tolerance 0     # the optimizer alone

The protocol is that of GPM's authors: batches of 64, 5 % of each task held out, the learning rate halved after a few
epochs without a lower validation loss, and the best weights of the task restored. DATA holds `cifar-100-binary`.
"""

import argparse
import copy
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import sfao
from sfao.lab.models.alexnet import alexnet
from sfao.lab.models.resnet import resnet_18

TASKS, CLASSES, BATCH, EPOCHS, SMALLEST_LR = 10, 10, 64, 200, 1e-5
#: The network and its patience; the authors' is 6.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "alexnet": (lambda: alexnet((3, 32, 32), 100), 6),
    "resnet-18": (lambda: resnet_18((3, 32, 32), 100, width=24), 3),
}
OPTIMIZERS: dict[str, tuple[Callable[..., torch.optim.Optimizer], float]] = {
    "sgd": (torch.optim.SGD, 0.01),
    "momentum": (lambda parameters, lr: torch.optim.SGD(parameters, lr, momentum=0.9), 0.01),
    "adamw": (torch.optim.AdamW, 1e-3),
}


def read_images(split: str, device: str) -> tuple[Tensor, Tensor]:
    """Return the normalized images and fine labels of a split."""
    rows = np.fromfile(Path(os.environ["SFAO_DATA"]) / "cifar-100-binary" / f"{split}.bin", np.uint8).reshape(-1, 3074)
    images = torch.from_numpy(rows[:, 2:]).to(device).view(-1, 3, 32, 32).float() / 255
    mean = torch.tensor([0.5071, 0.4867, 0.4408], device=device).view(1, 3, 1, 1)
    std = torch.tensor([0.2675, 0.2565, 0.2761], device=device).view(1, 3, 1, 1)
    return (images - mean) / std, torch.from_numpy(rows[:, 1]).to(device).long()


class Run:
    """One network, optimizer and seed."""

    def __init__(self, network: str, optimizer: str, tolerance: float, seed: int, device: str) -> None:
        torch.manual_seed(seed)
        make, self.patience = NETWORKS[network]
        self.model = make().to(device)
        make_optimizer, self.lr = OPTIMIZERS[optimizer]
        self.optimizer = make_optimizer(self.model.parameters(), lr=self.lr)
        self.bound = sfao.DriftBound(self.model, tolerance).attach(self.optimizer) if tolerance else None
        self.train, self.test = read_images("train", device), read_images("test", device)

    def select(self, data: tuple[Tensor, Tensor], task: int) -> tuple[Tensor, Tensor]:
        """Return the examples of a task, with labels from 0."""
        index = (data[1] // CLASSES == task).nonzero()[:, 0]
        return data[0][index], data[1][index] - CLASSES * task

    def loss(self, logits: Tensor, targets: Tensor, task: int) -> Tensor:
        return functional.cross_entropy(logits[:, CLASSES * task : CLASSES * (task + 1)], targets)

    @torch.no_grad()
    def evaluate(self, images: Tensor, targets: Tensor, task: int) -> tuple[float, float]:
        """Return loss and accuracy."""
        self.model.eval()
        logits = torch.cat([self.model(batch) for batch in images.split(1000)])
        self.model.train()
        answers = logits[:, CLASSES * task : CLASSES * (task + 1)].argmax(1)
        return float(self.loss(logits, targets, task)), float((answers == targets).float().mean())

    def learn(self, task: int) -> None:
        """Train on a task until the learning rate is too small, and consolidate."""
        images, targets = self.select(self.train, task)
        count = len(images) // 20
        held_out, images, targets = (images[:count], targets[:count]), images[count:], targets[count:]
        lr, best, wait, weights = self.lr, float("inf"), self.patience, copy.deepcopy(self.model.state_dict())
        for _ in range(EPOCHS):
            for group in self.optimizer.param_groups:
                group["lr"] = lr
            for index in torch.randperm(len(images), device=images.device).split(BATCH):
                self.optimizer.zero_grad()
                self.loss(self.model(images[index]), targets[index], task).backward()
                self.optimizer.step()
            loss, _ = self.evaluate(*held_out, task)
            if loss < best:
                best, wait, weights = loss, self.patience, copy.deepcopy(self.model.state_dict())
            elif (wait := wait - 1) == 0:
                lr, wait = lr / 2, self.patience
                if lr < SMALLEST_LR:
                    break
        self.model.load_state_dict(weights)
        if self.bound is not None:
            batches = list(zip(images.split(BATCH), targets.split(BATCH), strict=True))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.bound.consolidate(batches, lambda logits, y: self.loss(logits, y, task))

    def execute(self) -> dict[str, Any]:
        """Learn all tasks; return the average accuracy after them, and just after each."""
        learned, start = [], time.perf_counter()
        for task in range(TASKS):
            self.learn(task)
            row = [self.evaluate(*self.select(self.test, past), past)[1] for past in range(task + 1)]
            learned.append(row[-1])
            print(f"task {task + 1}: average {sum(row) / len(row):.4f}", flush=True)
        seconds = round(time.perf_counter() - start)
        return {"average": round(sum(row) / TASKS, 4), "learned": round(sum(learned) / TASKS, 4), "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=NETWORKS)
    parser.add_argument("optimizer", choices=OPTIMIZERS)
    parser.add_argument("--tolerance", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    found = Run(given.network, given.optimizer, given.tolerance, given.seed, given.device).execute()
    settings = {name: getattr(given, name) for name in ("network", "optimizer", "tolerance", "seed")}
    print(json.dumps({**settings, **found}))
    if given.json:
        given.json.write_text(json.dumps({**settings, **found}) + "\n")


if __name__ == "__main__":
    main()
