"""All data sets by name. A new one is a description in its own file and one entry here."""

from sfao.checks import check_choice
from sfao.lab.data.cifar import CIFAR10, CIFAR100
from sfao.lab.data.description import DatasetDescription
from sfao.lab.data.mnist import MNIST, MNIST_5K
from sfao.lab.data.tiny_imagenet import TINY_IMAGENET

#: In the order of `sfao data list`.
DATASETS: dict[str, DatasetDescription] = {
    description.name: description for description in (MNIST_5K, MNIST, CIFAR10, CIFAR100, TINY_IMAGENET)
}


def get_description(name: str) -> DatasetDescription:
    """Return the description of a data set; a ValueError for an unknown name suggests the nearest one."""
    check_choice("name", name, tuple(DATASETS))
    return DATASETS[name]
