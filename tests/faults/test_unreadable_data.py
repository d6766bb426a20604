"""Data files that cannot be read now: the reason is told, and nothing is changed."""

import os
import resource
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from sfao.lab.data import cache
from sfao.lab.data.dataset import load_dataset
from sfao.lab.data.errors import DataError, MissingData, UnreadableData
from sfao.lab.data.sets import DATASETS
from sfao.lab.data.sets.cifar10 import FORMAT as CIFAR10
from tests.faults.data_files import take_data
from tests.lab.data.publishers import pictures, write_cifar_binary

pytestmark = pytest.mark.usefixtures("_data_apart")


@contextmanager
def as_nobody(path):
    """Take every permission from a path, and, as root, the power to do without."""
    mode = path.stat().st_mode
    path.chmod(0)
    if os.geteuid() == 0:
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)
            path.chmod(mode)
    else:
        try:
            yield
        finally:
            path.chmod(mode)


@contextmanager
def failing_disk(path):
    """Make every read of a file an I/O error, as the memory of a process gives where nothing is mapped."""
    aside = path.with_name(path.name + ".aside")
    path.rename(aside)
    path.symlink_to("/proc/self/mem")
    try:
        yield
    finally:
        path.unlink()
        aside.rename(path)


@contextmanager
def no_more_files(path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def no_memory(path):
    description = DATASETS["cifar10"]

    def refuse(*_):
        raise MemoryError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(description), "find_layout", refuse)
        yield


OBSTACLES = {
    "no permission for a file": as_nobody,
    "a disk that fails": failing_disk,
    "too many open files": no_more_files,
    "no memory": no_memory,
}


def test_a_file_that_cannot_be_read_now_is_neither_missing_nor_damaged(attack):
    # Not in pytest's own folder, which nobody but its owner may enter.
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "data"
        write_cifar_binary(folder, CIFAR10, pictures(CIFAR10))
        for path in (Path(place), folder, *folder.rglob("*")):
            path.chmod(0o777)
        for what, meet in OBSTACLES.items():
            unread = attack("data files", f"{what}: the reason is told, nothing is changed")
            for seen in (False, True):
                shutil.rmtree(folder / ".sfao-cache", ignore_errors=True)
                if seen:
                    load_dataset("cifar10", folder)
                    shutil.rmtree(next((folder / ".sfao-cache").glob("*.v2")))
                unread.try_it(f"seen {seen}", lambda meet=meet: check_obstacle(folder, meet))


def check_obstacle(folder, meet):
    before = take_data(folder)
    said, kind = "", None
    with meet(folder / "cifar-10-batches-bin" / "data_batch_2.bin"):
        try:
            load_dataset("cifar10", folder)
        except DataError as error:
            said, kind = str(error), type(error)
    assert kind is UnreadableData, f"{kind and kind.__name__}: {said}"
    assert "could not be read (" in said, said
    assert take_data(folder) == before, "files were changed"
    try:
        load_dataset("cifar10", folder)
    except MissingData as error:
        raise AssertionError(str(error)) from error


def test_an_entry_that_cannot_be_read_now_is_left_alone(tmp_path, monkeypatch):
    write_cifar_binary(tmp_path, CIFAR10, pictures(CIFAR10))
    load_dataset("cifar10", tmp_path)
    for proof in (tmp_path / ".sfao-cache").glob("*.v2.checked"):
        proof.unlink()
    before = take_data(tmp_path)

    def fail(path):
        raise OSError(5, "Input/output error", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(cache, "compute_digest", fail)
        with pytest.raises(UnreadableData, match=r"train_images.bin: could not be read \(Input/output error\)"):
            load_dataset("cifar10", tmp_path)
    assert take_data(tmp_path) == before
