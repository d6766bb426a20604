"""Avalanche: the plugin's numbers are those of our own loop, and heads that grow are followed."""

import pytest
import torch
from avalanche.benchmarks import benchmark_from_datasets, task_incremental_benchmark, with_classes_timeline
from avalanche.benchmarks.utils import as_classification_dataset
from avalanche.models import IncrementalClassifier, MultiHeadClassifier, MultiTaskModule
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.supervised import Naive
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import sfao
from sfao.integrations.avalanche import DriftBoundPlugin, GatePlugin
from tests.integrations.tasks import make_network, make_tasks, measure_gap, train


def make_benchmark(tasks, task_labels=False):
    """The batches of each task as an experience."""
    sets = []
    for task in tasks:
        points = TensorDataset(*(torch.cat(parts) for parts in zip(*task, strict=True)))
        points.targets = points.tensors[1].tolist()
        sets.append(as_classification_dataset(points))
    benchmark = benchmark_from_datasets(train=sets, test=sets)
    return with_classes_timeline(task_incremental_benchmark(benchmark) if task_labels else benchmark)


def make_strategy(model, optimizer, plugins, **options):
    given = {"train_mb_size": 16, "train_epochs": 2, "evaluator": EvaluationPlugin(), **options}
    return Naive(model=model, optimizer=optimizer, criterion=nn.CrossEntropyLoss(), plugins=plugins, **given)


def learn(benchmark, strategy) -> None:
    for experience in benchmark.train_stream:
        strategy.train(experience, shuffle=False)


@pytest.mark.parametrize("make_optimizer", [torch.optim.SGD, torch.optim.AdamW], ids=["sgd", "adamw"])
@pytest.mark.parametrize("make_plugin", [GatePlugin, DriftBoundPlugin])
def test_its_numbers_are_those_of_our_own_loop(make_optimizer, make_plugin):
    tasks = make_tasks()
    model = make_network()
    plugin = make_plugin()
    learn(make_benchmark(tasks), make_strategy(model, make_optimizer(model.parameters(), lr=0.05), [plugin]))

    own = make_network()
    optimizer = make_optimizer(own.parameters(), lr=0.05)
    attached = plugin.kind(own).attach(optimizer)
    for task in tasks:
        train(own, optimizer, task, epochs=2)
        attached.consolidate(task, cross_entropy)
    assert plugin.attached.telemetry() == pytest.approx(attached.telemetry(), rel=1e-3)
    assert plugin.attached.memory_bytes == attached.memory_bytes > 0
    assert measure_gap(model, own) == 0.0


def test_sfao_as_the_optimizer_of_a_strategy():
    tasks = make_tasks()
    model = make_network()
    optimizer = sfao.SFAO(model, lr=0.1, momentum=0.5)
    learn(make_benchmark(tasks), make_strategy(model, optimizer, [GatePlugin()]))
    own = make_network()
    optimizer = sfao.SFAO(own, lr=0.1, momentum=0.5)
    for task in tasks:
        train(own, optimizer, task, epochs=2)
        optimizer.consolidate(task, cross_entropy)
    assert measure_gap(model, own) == 0.0


class Growing(nn.Module):
    """A network whose head has a unit for every class that it has seen."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Linear(12, 16)
        self.head = IncrementalClassifier(16, initial_out_features=2, masking=False)

    def forward(self, inputs):
        return self.head(self.body(inputs).relu())


def make_class_stream():
    """Every task has two classes of its own."""
    tasks = make_tasks()
    return [[(inputs, targets % 2 + 2 * number) for inputs, targets in task] for number, task in enumerate(tasks)]


class Labelled(MultiTaskModule):
    """A network with one head per task label."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Linear(12, 16)
        self.heads = MultiHeadClassifier(16, initial_out_features=4, masking=False)

    def forward(self, inputs, task_labels):
        return self.heads(self.body(inputs).relu(), task_labels)


@pytest.mark.parametrize("make_plugin", [GatePlugin, DriftBoundPlugin])
@pytest.mark.parametrize("make_model", [Growing, Labelled])
def test_heads_that_grow_and_new_heads_are_followed(make_model, make_plugin):
    model, plugin, has_labels = make_model(), make_plugin(), make_model is Labelled
    strategy = make_strategy(model, torch.optim.SGD(model.parameters(), lr=0.05), [plugin])
    learn(make_benchmark(make_tasks() if has_labels else make_class_stream(), task_labels=has_labels), strategy)
    assert plugin.attached.tasks == 3
    if has_labels:
        assert len(model.heads.classifiers) == 3
    else:
        assert model.head.classifier.out_features == 6
    if make_plugin is DriftBoundPlugin:
        assert len(plugin.attached.memory) == (4 if has_labels else 2)
    else:
        gated = {parameter for layer in plugin.attached.layers for parameter in layer.parameters}
        assert gated == set(model.parameters())
        assert sum(counts["project"] for counts in plugin.attached.counts.values()) > 0
