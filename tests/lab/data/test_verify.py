"""Files against what was published."""

from dataclasses import replace

import pytest
import torch

from sfao.lab.data.cifar import CIFAR10_FORMAT as CIFAR10
from sfao.lab.data.dataset import load_dataset
from sfao.lab.data.sets import DATASETS
from sfao.lab.data.verify import Status, list_datasets, verify_dataset
from tests.lab.data.publishers import (
    pictures,
    publish_mnist,
    small_mnist,
    write_cifar_binary,
    write_cifar_python,
    write_tiny_imagenet,
)


def statuses(name, root):
    return {result.path.name: str(result.status) for result in verify_dataset(name, root)}


def write(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("form", [0, 1], ids=["packed", "unpacked"])
@pytest.mark.parametrize("folder", ["MNIST/raw", "mnist", "."])
def test_published_files_are_ok_wherever_they_lie(tmp_path, monkeypatch, form, folder):
    publish_mnist(monkeypatch)
    files = small_mnist()[form]
    write(tmp_path / folder, files)
    assert statuses("mnist", tmp_path) == dict.fromkeys(files, "ok")


def test_missing_forged_and_truncated_files_are_found(tmp_path, monkeypatch):
    publish_mnist(monkeypatch)
    packed, unpacked = small_mnist()
    images = bytearray(unpacked["t10k-images-idx3-ubyte"])
    images[-1] ^= 1  # as readable as before
    write(
        tmp_path,
        {
            "train-images-idx3-ubyte": unpacked["train-images-idx3-ubyte"],
            "t10k-images-idx3-ubyte": bytes(images),
            "t10k-labels-idx1-ubyte.gz": packed["t10k-labels-idx1-ubyte.gz"][:-3],
        },
    )
    assert statuses("mnist", tmp_path) == {
        "train-images-idx3-ubyte": "ok",
        "train-labels-idx1-ubyte.gz": "missing",
        "t10k-images-idx3-ubyte": "differs",
        "t10k-labels-idx1-ubyte.gz": "differs",
    }
    details = {result.path.name: result.detail for result in verify_dataset("mnist", tmp_path)}
    size = len(packed["t10k-labels-idx1-ubyte.gz"])
    assert details["t10k-images-idx3-ubyte"].endswith(", got other content")
    assert details["t10k-labels-idx1-ubyte.gz"].startswith(f"must have {size} bytes and sha256:")
    assert details["t10k-labels-idx1-ubyte.gz"].endswith(f", got {size - 3} bytes")


@pytest.mark.parametrize(("name", "files"), [("mnist", 4), ("cifar10", 6), ("cifar100", 2), ("tiny-imagenet", 4)])
def test_where_there_is_nothing_everything_is_missing(tmp_path, name, files):
    assert [result.status for result in verify_dataset(name, tmp_path / "nowhere")] == [Status.MISSING] * files


def test_a_whole_tiny_imagenet_is_counted(tmp_path, monkeypatch):
    monkeypatch.setitem(DATASETS, "tiny-imagenet", replace(DATASETS["tiny-imagenet"], train=200, test=200))
    folder = write_tiny_imagenet(tmp_path)
    assert statuses("tiny-imagenet", tmp_path) == {"tiny-imagenet-200": "ok"}
    monkeypatch.setitem(DATASETS, "tiny-imagenet", replace(DATASETS["tiny-imagenet"], train=201))
    assert statuses("tiny-imagenet", tmp_path) == {"tiny-imagenet-200": "differs"}
    image = folder / "val" / "images" / "val_7.JPEG"
    image.write_bytes(image.read_bytes()[:-100])
    (wrong,) = verify_dataset("tiny-imagenet", tmp_path)
    assert wrong.status is Status.DIFFERS
    assert wrong.detail.startswith(f"{image}: must be a whole JPEG file")


def test_a_damaged_cache_is_found_and_made_again(tmp_path):
    write_cifar_binary(tmp_path, CIFAR10, pictures(CIFAR10))
    expected = load_dataset("cifar10", tmp_path).train_labels.clone()
    (labels,) = (tmp_path / ".sfao-cache").glob("*/train_labels.npy")
    content = bytearray(labels.read_bytes())
    content[-8] ^= 1
    labels.write_bytes(content)
    result = verify_dataset("cifar10", tmp_path)[-1]
    assert (result.path, result.status) == (labels.parent, Status.DIFFERS)
    assert "removed from the cache" in result.detail
    assert torch.equal(load_dataset("cifar10", tmp_path).train_labels, expected)
    assert verify_dataset("cifar10", tmp_path)[-1].status is Status.OK


def test_a_pickle_that_would_run_something_is_not_even_read(tmp_path):
    write_cifar_python(tmp_path, CIFAR10, pictures(CIFAR10))
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(b"cos\nsystem\n(X\x04\x00\x00\x00truetR.")
    assert statuses("cifar10", tmp_path)["test_batch"] == "differs"


def test_the_embedded_digits_are_ok():
    assert statuses("mnist-5k", None) == {"mnist-5k-images-idx3-ubyte.gz": "ok"}


def test_a_list_says_where_each_set_is(tmp_path):
    write_cifar_binary(tmp_path, CIFAR10, pictures(CIFAR10))
    rows = {row["name"]: row for row in list_datasets(tmp_path)}
    assert list(rows) == list(DATASETS)
    assert rows["tiny-imagenet"]["where"] is None
    assert rows["cifar10"]["where"] == tmp_path / "cifar-10-batches-bin"
    assert rows["mnist-5k"]["where"].name == "mnist-5k-images-idx3-ubyte.gz"
    assert (rows["mnist-5k"]["download"], rows["mnist"]["download"]) == (0, 11_594_722)
