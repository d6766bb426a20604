"""Damage to the files of data sets and of their cache: the right numbers or a refusal, and `data verify` finds it."""

import os
import random
import shutil
import time

import numpy as np
import pytest

from sfao.lab.data.dataset import load_dataset
from sfao.lab.data.errors import DataError
from sfao.lab.data.fetching.verify import GOOD, accept_dataset, verify_dataset
from sfao.lab.data.sets.cifar10 import FORMAT as CIFAR10
from sfao.lab.data.sets.cifar100 import FORMAT as CIFAR100
from tests.faults.data_files import SETTLED_SECONDS, list_files, take_contents
from tests.faults.tally import in_soak
from tests.lab.data.fetching.published import small_mnist
from tests.lab.data.publishers import pictures, write_cifar_binary, write_cifar_python, write_tiny_imagenet

pytestmark = pytest.mark.usefixtures("_data_apart")

ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")


def write_published_mnist(folder, packed):
    (folder / "MNIST" / "raw").mkdir(parents=True)
    for name, content in small_mnist()[0 if packed else 1].items():
        (folder / "MNIST" / "raw" / name).write_bytes(content)


#: {what it is: (name of the data set, what writes it)}
DATA = {
    "published idx files": ("mnist", lambda folder: write_published_mnist(folder, packed=False)),
    "published packed files": ("mnist", lambda folder: write_published_mnist(folder, packed=True)),
    "a subset in binary": ("cifar10", lambda folder: write_cifar_binary(folder, CIFAR10, pictures(CIFAR10))),
    "a subset in pickles": ("cifar100", lambda folder: write_cifar_python(folder, CIFAR100, pictures(CIFAR100))),
    "a subset in JPEG files": ("tiny-imagenet", lambda folder: write_tiny_imagenet(folder, validation=3)),
}


def values(dataset):
    return [getattr(dataset, name).numpy().copy() for name in ARRAYS]


def put_back(folder, contents):
    for path in list_files(folder):
        if path not in contents:
            path.unlink()
    for path, content in contents.items():
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def flip(path, dice):
    content = bytearray(path.read_bytes())
    content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    path.write_bytes(content)


def flip_and_hide(path, dice):
    status = path.stat()
    flip(path, dice)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def zero_half(path, dice):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + bytes(len(content) - len(content) // 2))


def cut(path, dice):
    os.truncate(path, dice.randrange(path.stat().st_size))


def shift_all(path, dice):
    path.write_bytes((np.frombuffer(path.read_bytes(), np.uint8) + 1).tobytes())


DAMAGES = {
    "a flipped bit": flip,
    "a flipped bit, the time of the file put back": flip_and_hide,
    "half of a file zeroed": zero_half,
    "a file cut short": cut,
    "all bytes one more": shift_all,
}


def check_loading(name, folder, expected):
    """The right values or a refusal of one or two lines; never other values."""
    try:
        found = load_dataset(name, folder)
    except DataError as error:
        lines = str(error).splitlines()
    else:
        assert all(np.array_equal(*pair) for pair in zip(values(found), expected, strict=True)), "other numbers"
        lines = []
    assert len(lines) <= 2, f"{len(lines)} lines"


def check_verifying(name, folder):
    assert any(result.status not in GOOD for result in verify_dataset(name, folder)), "it was not found"


@pytest.mark.parametrize("kind", DATA)
def test_damage_gives_no_wrong_number_and_is_found(attack, tmp_path, kind):
    name, write = DATA[kind]
    folder = tmp_path / "data"
    write(folder)
    expected = values(load_dataset(name, folder))
    accept_dataset(name, folder)
    expected_too = values(load_dataset(name, folder))
    assert all(np.array_equal(*pair) for pair in zip(expected, expected_too, strict=True))
    assert all(result.status in GOOD for result in verify_dataset(name, folder))
    contents = take_contents(folder)
    dice = random.Random(kind)
    pictures_among_them = [path for path in contents if path.suffix == ".JPEG"]
    # Of the many pictures no more than of the other files.
    paths = [path for path in contents if path not in pictures_among_them] + dice.sample(
        pictures_among_them, min(4, len(pictures_among_them))
    )
    for what, damage in DAMAGES.items():
        loading = attack(f"{kind}, and their cache", f"{what}, then a run")
        verifying = attack(f"{kind}, and their cache", f"{what}, then `data verify`")
        for trial in range(in_soak(1 if name == "tiny-imagenet" else 3, 100)):
            path = dice.choice(paths if trial else [path for path in paths if path.suffix != ".checked"])
            damage(path, dice)
            if path.read_bytes() != contents[path]:
                if path.suffix != ".checked":  # what is remembered is no data: it fits or it is forgotten
                    verifying.try_it(path.name, lambda: check_verifying(name, folder))
                put_back(folder, contents)
                time.sleep(2 * SETTLED_SECONDS)
                load_dataset(name, folder)  # all is checked, and remembered
                damage(path, dice)
                loading.try_it(path.name, lambda: check_loading(name, folder, expected))
            put_back(folder, contents)


@pytest.mark.parametrize("seen", [False, True], ids=["never seen", "seen"])
def test_published_images_with_other_labels_are_refused(tmp_path, seen):
    write_published_mnist(tmp_path, packed=False)
    if seen:
        load_dataset("mnist", tmp_path)
        shutil.rmtree(next((tmp_path / ".sfao-cache").glob("*.v2")))
    path = tmp_path / "MNIST" / "raw" / "train-labels-idx1-ubyte"
    content = path.read_bytes()
    path.write_bytes(content[:8] + bytes((byte + 1) % 10 for byte in content[8:]))
    with pytest.raises(DataError, match="train-labels-idx1-ubyte: must be") as caught:
        load_dataset("mnist", tmp_path)
    assert "sfao data verify mnist --accept" in str(caught.value)
    accept_dataset("mnist", tmp_path)
    assert load_dataset("mnist", tmp_path).published is False


def test_what_one_has_is_taken_and_never_passed_off_as_published(tmp_path):
    write_cifar_binary(tmp_path, CIFAR10, pictures(CIFAR10))
    first = load_dataset("cifar10", tmp_path)
    assert first.published is False
    write_cifar_binary(tmp_path, CIFAR10, pictures(CIFAR10, seed=1))
    with pytest.raises(DataError, match=r"data_batch_1.bin \(and 5 more\): must be as it was first used on"):
        load_dataset("cifar10", tmp_path)
    accept_dataset("cifar10", tmp_path)
    second = load_dataset("cifar10", tmp_path)
    assert second.published is False
    assert second.digest != first.digest
    write_cifar_python(tmp_path / "other", CIFAR10, pictures(CIFAR10, seed=1))
    assert load_dataset("cifar10", tmp_path / "other").digest == second.digest  # the same images in another form


def test_what_cannot_be_decoded_is_not_what_files_must_be_from_then_on(tmp_path):
    write_cifar_binary(tmp_path, CIFAR10, pictures(CIFAR10))
    path = tmp_path / CIFAR10.binary_folder / "data_batch_1.bin"
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(DataError, match="must hold whole records"):
        load_dataset("cifar10", tmp_path)
    path.write_bytes(content)
    assert len(load_dataset("cifar10", tmp_path).train_labels) == 20
