"""The benchmarks by name: a data set, the way it is split into tasks, and the settings of a run."""

from sfao.lab.names import Registry
from sfao.lab.streams.own import adapt_benchmark
from sfao.lab.streams.permuted import permute
from sfao.lab.streams.split import split
from sfao.lab.streams.stream import Benchmark, TaskSplit

SPLIT = TaskSplit("split", split)
PERMUTED = TaskSplit("permuted", permute)

# The protocol of the paper's released code: learning rate 1e-3, batches of 32, two epochs, no momentum.
MNIST = {"model": {"name": "mlp", "hidden": 256}}
CIFAR = {"model": {"name": "cnn", "fc": 256}}
WIDE = {"model": {"name": "wrn-28-10"}}
# A twelfth of the data: as many updates as on all of MNIST would take 24 epochs, a larger rate takes the rest.
FEW_DIGITS = {**MNIST, "lr": 0.01, "epochs": 5, "batch_size": 16}

OURS = {
    "split-mnist": Benchmark("mnist", SPLIT, 5, MNIST),
    "permuted-mnist": Benchmark("mnist", PERMUTED, 3, MNIST),
    "split-cifar10": Benchmark("cifar10", SPLIT, 5, CIFAR),
    "split-cifar100": Benchmark("cifar100", SPLIT, 10, {**CIFAR, "batch_size": 24}),
    "split-tinyimagenet": Benchmark("tiny-imagenet", SPLIT, 10, WIDE),
    "split-mnist-5k": Benchmark("mnist-5k", SPLIT, 5, FEW_DIGITS),
    "permuted-mnist-5k": Benchmark("mnist-5k", PERMUTED, 3, FEW_DIGITS),
}

BENCHMARKS: Registry[Benchmark] = Registry("benchmark", "sfao.benchmarks", adapt_benchmark, OURS)
