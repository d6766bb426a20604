"""Split digits in Avalanche, with a head that grows, without a plugin and with two. Takes a minute."""

import warnings

import torch
from avalanche.benchmarks import benchmark_from_datasets, with_classes_timeline
from avalanche.benchmarks.utils import as_classification_dataset
from avalanche.models import IncrementalClassifier
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.supervised import Naive
from torch import nn
from torch.utils.data import TensorDataset

from sfao.integrations.avalanche import DriftBoundPlugin, GatePlugin
from sfao.lab.data.mnist import DIGITS, read_images

warnings.filterwarnings("ignore", module="avalanche")
torch.set_num_threads(1)  # small tensors gain nothing from more


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(784, 128)
        self.head = IncrementalClassifier(128, initial_out_features=2)

    def forward(self, images):
        return self.head(self.body(images).relu())


def make_stream():
    """Five experiences of two digits each."""
    images = torch.tensor(read_images(DIGITS)).flatten(1)  # 500 of each class
    digits = torch.arange(10).repeat_interleave(500)
    sets = []
    for first in range(0, 10, 2):
        chosen = (digits == first) | (digits == first + 1)
        experience = TensorDataset(images[chosen].float() / 255, digits[chosen])
        experience.targets = digits[chosen].tolist()
        sets.append(as_classification_dataset(experience))
    return with_classes_timeline(benchmark_from_datasets(train=sets))


def learn(stream, plugins):
    """Learn the experiences, one after the other; return the accuracy on each."""
    torch.manual_seed(0)
    model = Network()
    strategy = Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.02),
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=10,
        evaluator=EvaluationPlugin(),
        plugins=plugins,
    )
    for experience in stream.train_stream:
        strategy.train(experience)
    model.eval()
    accuracies = []
    for experience in stream.train_stream:
        images, digits = (
            torch.stack(list(map(torch.as_tensor, part))) for part in zip(*experience.dataset, strict=True)
        )
        accuracies.append(float((model(images).argmax(1) == digits).float().mean()))
    return accuracies


stream = make_stream()
print("SGD", *(f"{accuracy:.2f}" for accuracy in learn(stream, [])))
for plugin in (GatePlugin(), DriftBoundPlugin()):
    accuracies = learn(stream, [plugin])
    print(type(plugin.attached).__name__, *(f"{accuracy:.2f}" for accuracy in accuracies), end=", ")
    print(f"{plugin.attached.memory_bytes / 1e6:.2f} MB")
