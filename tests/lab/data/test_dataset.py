"""load_dataset: from a name to tensors."""

import subprocess
import sys

import pytest
import torch

from sfao.lab.data import root
from sfao.lab.data.cifar import CIFAR10_FORMAT as CIFAR10
from sfao.lab.data.cifar import CIFAR100_FORMAT as CIFAR100
from sfao.lab.data.dataset import load_dataset
from sfao.lab.data.errors import DataError, MissingData
from tests.lab.data.publishers import (
    digits,
    mnist_files,
    pictures,
    publish_mnist,
    small_mnist,
    write_cifar_binary,
    write_cifar_python,
    write_mnist,
    write_tiny_imagenet,
)


@pytest.fixture(autouse=True)
def user(tmp_path, monkeypatch):
    """A user's cache folder that is not the user's."""
    folder = tmp_path / "user"
    monkeypatch.setattr(root, "get_user_cache", lambda: folder)
    monkeypatch.delenv("SFAO_DATA", raising=False)
    return folder


#: The data sets that the fixture `data` writes.
WRITTEN = ("mnist", "cifar10", "cifar100", "tiny-imagenet")


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    write_mnist(folder / "MNIST" / "raw", digits())
    write_cifar_binary(folder, CIFAR10, pictures(CIFAR10))
    write_cifar_python(folder, CIFAR100, pictures(CIFAR100))
    write_tiny_imagenet(folder, validation=5)
    return folder


@pytest.mark.parametrize("name", ["mnist-5k", *WRITTEN])
def test_a_dataset_is_bytes_and_whole_numbers(data, name):
    for _ in range(2):  # read, then from the cache
        dataset = load_dataset(name, data)
        assert dataset.name == name
        for images, labels in (
            (dataset.train_images, dataset.train_labels),
            (dataset.test_images, dataset.test_labels),
        ):
            assert images.dtype == torch.uint8
            assert labels.dtype == torch.int64
            assert len(images) == len(labels)
            assert images.shape[1] == len(dataset.mean) == len(dataset.std)
            assert labels.min() >= 0
            assert labels.max() < dataset.classes


def test_the_embedded_digits_are_complete_and_say_that_they_are_embedded(tmp_path):
    dataset = load_dataset("mnist-5k", tmp_path / "nowhere")
    assert dataset.embedded
    assert dataset.complete
    assert (dataset.train_images.shape, dataset.test_images.shape) == ((4000, 1, 28, 28), (1000, 1, 28, 28))
    assert (dataset.mean, dataset.std) == ((0.0,), (1.0,))


def test_the_root_is_the_argument_then_the_variable_then_the_cache_folder(tmp_path, user, monkeypatch):
    places = {"argument": tmp_path / "argument", "variable": tmp_path / "variable", "user": user}
    for number, folder in enumerate(places.values()):
        write_mnist(folder, digits(train=10 + number))
    assert len(load_dataset("mnist").train_images) == 12
    monkeypatch.setenv("SFAO_DATA", str(places["variable"]))
    assert len(load_dataset("mnist").train_images) == 11
    assert len(load_dataset("mnist", str(places["argument"])).train_images) == 10


def test_the_binary_version_goes_before_the_python_version(tmp_path):
    write_cifar_python(tmp_path, CIFAR10, pictures(CIFAR10, train=10))
    assert len(load_dataset("cifar10", tmp_path).train_images) == 10
    write_cifar_binary(tmp_path, CIFAR10, pictures(CIFAR10, train=15))
    assert len(load_dataset("cifar10", tmp_path).train_images) == 15


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("mnist", ["MNIST/raw", "mnist", ""]),
        ("cifar10", ["cifar-10-batches-py", "cifar-10-batches-bin"]),
        ("cifar100", ["cifar-100-python", "cifar-100-binary"]),
        ("tiny-imagenet", ["tiny-imagenet-200"]),
    ],
)
def test_missing_data_says_where_it_looked_and_the_command(tmp_path, name, places):
    with pytest.raises(MissingData) as caught:
        load_dataset(name, tmp_path)
    message = str(caught.value)
    assert all(str(tmp_path / place) in message for place in places)
    assert f"sfao data get {name}" in message
    assert len(message.splitlines()) == 2


def test_a_folder_that_lacks_a_file_is_named_with_the_file(tmp_path):
    write_cifar_python(tmp_path, CIFAR10, pictures(CIFAR10))
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").unlink()
    with pytest.raises(MissingData, match="cifar-10-batches-py lacks data_batch_3\n"):
        load_dataset("cifar10", tmp_path)


def test_a_file_that_cannot_be_read_is_an_error_of_the_disk_that_names_it(tmp_path):
    write_mnist(tmp_path, digits(), packed=False)
    path = tmp_path / "t10k-labels-idx1-ubyte"
    path.unlink()
    path.mkdir()  # holds for root too, unlike a permission
    with pytest.raises(OSError, match=str(path)):
        load_dataset("mnist", tmp_path)


def test_published_files_are_published_and_changed_ones_among_them_refused(tmp_path, monkeypatch):
    publish_mnist(monkeypatch)
    for name, content in small_mnist()[1].items():
        (tmp_path / name).write_bytes(content)
    assert load_dataset("mnist", tmp_path).published is True
    path = tmp_path / "train-labels-idx1-ubyte"
    content = path.read_bytes()
    path.write_bytes(content[:8] + bytes((byte + 1) % 10 for byte in content[8:]))
    with pytest.raises(DataError, match="train-labels-idx1-ubyte: must be the published file") as caught:
        load_dataset("mnist", tmp_path)
    assert "sfao data get mnist" in str(caught.value)


def test_other_data_are_taken_and_never_passed_off_as_published(tmp_path):
    write_cifar_binary(tmp_path, CIFAR10, pictures(CIFAR10))
    first = load_dataset("cifar10", tmp_path)
    assert first.published is False
    write_cifar_binary(tmp_path, CIFAR10, pictures(CIFAR10, seed=1))
    second = load_dataset("cifar10", tmp_path)
    assert second.digest != first.digest
    write_cifar_python(tmp_path / "other", CIFAR10, pictures(CIFAR10, seed=1))
    assert load_dataset("cifar10", tmp_path / "other").digest == second.digest  # the same images in another form


def test_the_embedded_digits_are_those_of_all_records():
    dataset = load_dataset("mnist-5k")
    assert dataset.digest == "a6bbd5113f469d9a"
    assert dataset.published is True
    assert dataset.train_labels.tolist() == [label for label in range(10) for _ in range(400)]
    train = {image.numpy().tobytes() for image in dataset.train_images}
    assert len(train) == 4000
    assert not any(image.numpy().tobytes() in train for image in dataset.test_images)


def test_a_read_only_root_is_cached_for_the_user(tmp_path, user):
    folder = tmp_path / "data"
    folder.mkdir()
    for name, content in mnist_files(digits()).items():
        (folder / name).write_bytes(content)
    (folder / ".sfao-cache").write_text("in the way, as a folder without permission would be")
    load_dataset("mnist", folder)
    assert len(list((user / "arrays").iterdir())) == 1


@pytest.mark.parametrize(
    ("imported", "absent"),
    [
        ("sfao", {"sfao.lab.data", "platformdirs", "PIL"}),
        ("sfao.lab.data.fetch", {"torch", "pooch"}),
        ("sfao.lab.data.dataset", {"pandas", "matplotlib", "scipy", "requests", "pooch"}),
    ],
)
def test_importing_it_stays_light(imported, absent):
    code = f"import sys, {imported}; sys.exit(bool({absent} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
