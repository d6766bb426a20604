"""All data sets by name. A new one is its own file in this folder and one entry here."""

from sfao.checks import check_choice
from sfao.lab.data.description import DatasetDescription
from sfao.lab.data.sets.cifar10 import CIFAR10
from sfao.lab.data.sets.cifar100 import CIFAR100
from sfao.lab.data.sets.mnist import MNIST
from sfao.lab.data.sets.mnist_5k import MNIST_5K
from sfao.lab.data.sets.tiny_imagenet import TINY_IMAGENET

#: In the order in which they are listed.
DATASETS: dict[str, DatasetDescription] = {
    description.name: description for description in (MNIST_5K, MNIST, CIFAR10, CIFAR100, TINY_IMAGENET)
}


def get_description(name: str) -> DatasetDescription:
    """Return the description of a data set; a ValueError for an unknown name suggests the nearest one."""
    check_choice("name", name, tuple(DATASETS))
    return DATASETS[name]
