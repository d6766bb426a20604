"""All datasets at a glance."""

from sfao.benchmarks.fetching.listing import list_datasets
from sfao.benchmarks.formats.cifar import CIFAR10
from sfao.benchmarks.names import NAMES
from tests.benchmarks.publishers import pictures, write_cifar_python


def test_what_is_here_is_told_from_what_is_not(tmp_path):
    write_cifar_python(tmp_path, CIFAR10, pictures(CIFAR10))
    listed = {item.name: item for item in list_datasets(tmp_path)}
    assert tuple(listed) == NAMES
    assert listed["cifar10"].where == tmp_path / "cifar-10-batches-py"
    assert listed["mnist-5k"].where.name == "mnist_5k.csv.gz"
    assert listed["mnist-5k"].download == 0
    assert [name for name, item in listed.items() if item.where is None] == ["mnist", "cifar100", "tiny-imagenet"]
    assert listed["mnist"].download == 11_594_722
