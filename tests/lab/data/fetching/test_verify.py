"""Files against what was published."""

import pytest

from sfao.lab.data.fetching.verify import verify_dataset
from sfao.lab.data.file_check import Status
from sfao.lab.data.sets.cifar10 import FORMAT as CIFAR10
from sfao.lab.data.sets.cifar100 import FORMAT as CIFAR100
from tests.lab.data.fetching.published import publish_mnist, small_mnist
from tests.lab.data.publishers import (
    digits,
    pictures,
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
    publish_mnist(monkeypatch, [])
    files = small_mnist()[form]
    write(tmp_path / folder, files)
    assert statuses("mnist", tmp_path) == dict.fromkeys(files, "ok")


def test_a_missing_file_a_subset_and_a_forgery_are_told_apart(tmp_path, monkeypatch):
    publish_mnist(monkeypatch, [])
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
    assert statuses("tiny-imagenet", tmp_path) == {"wnids.txt": "ok", "train": "partial", "val": "partial"}


@pytest.mark.parametrize(("name", "files"), [("mnist", 4), ("cifar10", 6), ("cifar100", 2), ("tiny-imagenet", 4)])
def test_where_there_is_nothing_everything_is_missing(tmp_path, name, files):
    assert [result.status for result in verify_dataset(name, tmp_path / "nowhere")] == [Status.MISSING] * files


def test_a_whole_tiny_imagenet_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("sfao.lab.data.sets.tiny_imagenet.TRAIN_PER_CLASS", 1)
    monkeypatch.setattr("sfao.lab.data.sets.tiny_imagenet.VALIDATION", 200)
    folder = write_tiny_imagenet(tmp_path)
    assert set(statuses("tiny-imagenet", tmp_path).values()) == {"ok"}
    image = folder / "val" / "images" / "val_7.JPEG"
    image.write_bytes(image.read_bytes()[:-5])
    assert statuses("tiny-imagenet", tmp_path) == {"wnids.txt": "ok", "train": "ok", "val": "differs"}
    (folder / "wnids.txt").write_text("n00009999\n")
    assert statuses("tiny-imagenet", tmp_path) == {"tiny-imagenet-200": "differs"}


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
