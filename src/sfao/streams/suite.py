"""The benchmarks by name: which data, cut how, learnt by which model with which settings."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sfao.checks import check_choice
from sfao.data.sources import Dataset
from sfao.streams.permuted import permuted
from sfao.streams.split import split
from sfao.streams.stream import Stream


@dataclass(frozen=True)
class Benchmark:
    dataset: str
    kind: str
    tasks: int
    #: What a run is configured with unless told otherwise.
    settings: dict[str, Any] = field(default_factory=dict)


# The protocol of the paper's released code: learning rate 1e-3, batches of 32, two epochs, no momentum.
MNIST = {"model": {"name": "mlp", "hidden": 256}}
CIFAR = {"model": {"name": "cnn", "fc": 256}}
WIDE = {"model": {"name": "wrn-28-10"}}
# A twelfth of the data: as many updates as on all of MNIST would take 24 epochs, a larger rate takes the rest.
FEW_DIGITS = {**MNIST, "lr": 0.01, "epochs": 5, "batch_size": 16}

BENCHMARKS = {
    "split-mnist": Benchmark("mnist", "split", 5, MNIST),
    "permuted-mnist": Benchmark("mnist", "permuted", 3, MNIST),
    "split-cifar10": Benchmark("cifar10", "split", 5, CIFAR),
    "split-cifar100": Benchmark("cifar100", "split", 10, {**CIFAR, "batch_size": 24}),
    "split-tinyimagenet": Benchmark("tiny-imagenet", "split", 10, WIDE),
    "split-mnist-5k": Benchmark("mnist-5k", "split", 5, FEW_DIGITS),
    "permuted-mnist-5k": Benchmark("mnist-5k", "permuted", 3, FEW_DIGITS),
}


def make_stream(
    name: str,
    dataset: Dataset,
    *,
    tasks: int | None,
    scenario: str,
    seed: int,
    order: str | Sequence[int] | None,
    validation: float,
) -> Stream:
    """The stream of a benchmark, over a dataset that has been loaded."""
    check_choice("benchmark", name, tuple(BENCHMARKS))
    benchmark = BENCHMARKS[name]
    cut = split if benchmark.kind == "split" else permuted
    return cut(
        dataset,
        tasks=tasks or benchmark.tasks,
        scenario=scenario,
        seed=seed,
        order=order,
        validation=validation,
    )
