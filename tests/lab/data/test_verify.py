"""Files against what was published."""

from dataclasses import replace

import pytest
import torch

from sfao.lab.data.cifar import CIFAR10_FORMAT as CIFAR10
from sfao.lab.data.cifar import CIFAR100_FORMAT as CIFAR100
from sfao.lab.data.dataset import load_dataset
from sfao.lab.data.sets import DATASETS
from sfao.lab.data.verify import Status, list_datasets, verify_dataset
from tests.lab.data.publishers import (
    digits,
    pictures,
    publish_mnist,
    small_mnist,
    write_cifar_binary,
    write_cifar_python,
    write_mnist,
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


def test_a_missing_file_a_subset_and_a_forgery_are_told_apart(tmp_path, monkeypatch):
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


def test_every_file_of_a_subset_is_partial(tmp_path):
    write_mnist(tmp_path / "MNIST" / "raw", digits(), packed=False)
    write_cifar_binary(tmp_path, CIFAR10, pictures(CIFAR10))
    write_cifar_python(tmp_path, CIFAR100, pictures(CIFAR100))
    write_tiny_imagenet(tmp_path)
    for name in ("mnist", "cifar10", "cifar100"):
        assert set(statuses(name, tmp_path).values()) == {"partial"}
    assert statuses("tiny-imagenet", tmp_path) == {"tiny-imagenet-200": "partial"}


@pytest.mark.parametrize(("name", "files"), [("mnist", 4), ("cifar10", 6), ("cifar100", 2), ("tiny-imagenet", 4)])
def test_where_there_is_nothing_everything_is_missing(tmp_path, name, files):
    assert [result.status for result in verify_dataset(name, tmp_path / "nowhere")] == [Status.MISSING] * files


def test_a_whole_tiny_imagenet_is_counted(tmp_path, monkeypatch):
    monkeypatch.setitem(DATASETS, "tiny-imagenet", replace(DATASETS["tiny-imagenet"], train=200, test=200))
    folder = write_tiny_imagenet(tmp_path)
    assert statuses("tiny-imagenet", tmp_path) == {"tiny-imagenet-200": "ok"}
    image = folder / "val" / "images" / "val_7.JPEG"
    image.write_bytes(image.read_bytes()[:-100])
    (wrong,) = (result for result in verify_dataset("tiny-imagenet", tmp_path) if result.status is not Status.OK)
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


def test_a_pickle_that_would_run_something_differs(tmp_path):
    write_cifar_python(tmp_path, CIFAR10, pictures(CIFAR10))
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(b"cos\nsystem\n(X\x04\x00\x00\x00truetR.")
    (result,) = [result for result in verify_dataset("cifar10", tmp_path) if result.path.name == "test_batch"]
    assert result.status is Status.DIFFERS
    assert "os.system" in result.detail


def test_the_embedded_digits_are_ok():
    (result,) = verify_dataset("mnist-5k")
    assert result.status is Status.OK


def test_an_unknown_name_is_refused(tmp_path):
    with pytest.raises(ValueError, match="did you mean 'mnist'"):
        verify_dataset("mnits", tmp_path)


def test_a_list_has_what_is_here_beside_what_was_published(tmp_path):
    write_mnist(tmp_path, digits(), packed=True)
    write_cifar_binary(tmp_path, CIFAR10, pictures(CIFAR10))
    write_cifar_python(tmp_path, CIFAR100, pictures(CIFAR100))
    rows = {row["name"]: row for row in list_datasets(tmp_path)}
    assert list(rows) == list(DATASETS)
    assert rows["tiny-imagenet"]["where"] is None
    assert rows["cifar10"]["where"] == tmp_path / "cifar-10-batches-bin"
    assert rows["mnist-5k"]["where"].name == "mnist-5k-images-idx3-ubyte.gz"
    assert (rows["mnist-5k"]["download"], rows["mnist"]["download"]) == (0, 11_594_722)
    for name in ("mnist-5k", "mnist", "cifar10", "cifar100"):
        dataset = load_dataset(name, tmp_path)
        assert rows[name]["train_here"] == len(dataset.train_labels)
        assert rows[name]["test_here"] == len(dataset.test_labels)
    write_tiny_imagenet(tmp_path)
    (row,) = (row for row in list_datasets(tmp_path) if row["name"] == "tiny-imagenet")
    assert (row["train_here"], row["test_here"]) == (200, 200)


def test_damaged_files_are_listed_all_the_same(tmp_path):
    write_mnist(tmp_path, digits(), packed=True)
    write_cifar_binary(tmp_path, CIFAR10, pictures(CIFAR10))
    for damaged in (*tmp_path.rglob("*labels*"), *tmp_path.rglob("test_batch*")):
        damaged.write_bytes(damaged.read_bytes()[:7])
    rows = {row["name"]: row for row in list_datasets(tmp_path)}
    for name in ("mnist", "cifar10"):
        assert rows[name]["where"] is not None
        assert (rows[name]["train_here"], rows[name]["test_here"]) == (None, None)
