"""All datasets at a glance."""

from sfao.lab.data.dataset import load_dataset
from sfao.lab.data.fetching.listing import list_datasets
from sfao.lab.data.sets import DATASETS
from sfao.lab.data.sets.cifar10 import FORMAT as CIFAR10
from sfao.lab.data.sets.cifar100 import FORMAT as CIFAR100
from tests.lab.data.publishers import (
    digits,
    pictures,
    write_cifar_binary,
    write_cifar_python,
    write_mnist,
    write_tiny_imagenet,
)


def test_what_is_here_is_told_from_what_is_not(tmp_path):
    write_cifar_python(tmp_path, CIFAR10, pictures(CIFAR10))
    listed = {item.name: item for item in list_datasets(tmp_path)}
    assert list(listed) == list(DATASETS)
    assert listed["cifar10"].where == tmp_path / "cifar-10-batches-py"
    assert listed["mnist-5k"].where.name == "mnist_5k.csv.gz"
    assert listed["mnist-5k"].download == 0
    assert {name for name, item in listed.items() if item.where} == {"mnist-5k", "cifar10"}
    assert listed["mnist"].download == 11_594_722


def test_a_part_of_a_set_is_told_with_what_is_there(tmp_path):
    write_mnist(tmp_path, digits(), packed=True)
    write_cifar_binary(tmp_path, CIFAR10, pictures(CIFAR10))
    write_cifar_python(tmp_path, CIFAR100, pictures(CIFAR100))
    write_tiny_imagenet(tmp_path)
    here = [item for item in list_datasets(tmp_path) if item.where]
    assert {item.name for item in here} == {"mnist-5k", "mnist", "cifar10", "cifar100", "tiny-imagenet"}
    for item in here:
        dataset = load_dataset(item.name, tmp_path)
        assert (item.train_here, item.test_here) == (len(dataset.train_labels), len(dataset.test_labels))
        assert item.complete == dataset.complete == (item.name == "mnist-5k")
        assert item.train > item.train_here or item.complete


def test_what_is_too_damaged_to_count_is_listed_all_the_same(tmp_path):
    write_mnist(tmp_path, digits(), packed=True)
    write_cifar_binary(tmp_path, CIFAR10, pictures(CIFAR10))
    for damaged in (*tmp_path.rglob("*labels*"), *tmp_path.rglob("test_batch*")):
        damaged.write_bytes(damaged.read_bytes()[:7])
    listed = {item.name: item for item in list_datasets(tmp_path)}
    for name in ("mnist", "cifar10"):
        assert listed[name].where is not None
        assert (listed[name].train_here, listed[name].test_here, listed[name].complete) == (None, None, False)
