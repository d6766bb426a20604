"""The cache: decoded once, whole or absent, never in the way."""

import os
import threading

import numpy as np
import pytest
import torch

from sfao.lab.data import cache
from sfao.lab.data.arrays import digest_arrays
from sfao.lab.data.errors import DataError
from tests.lab.data.publishers import assert_same, digits


class Source:
    """Arrays that count how often they are decoded."""

    def __init__(self, folder):
        self.folders = [folder / "first", folder / "second"]
        self.arrays = digits()
        self.reads = 0

    def load(self):
        found = cache.find_entry("digits", self.folders)
        if found is None:
            self.reads += 1
            loaded = cache.Loaded(self.arrays, digest_arrays(self.arrays), published=True)
            found = cache.write_entry("digits", self.folders, loaded)
        assert_same(found.arrays, self.arrays)
        assert found.digest == digest_arrays(self.arrays)
        assert found.published
        return found.arrays

    @property
    def entry(self):
        return self.folders[0] / "digits"


@pytest.fixture
def source(tmp_path):
    return Source(tmp_path)


def test_the_second_load_maps_what_the_first_one_wrote(source):
    source.load()
    assert isinstance(source.load().train_images, np.memmap)
    assert source.reads == 1
    assert not source.folders[1].exists()


def test_writing_to_loaded_arrays_does_not_change_the_cache(source):
    source.load()
    torch.from_numpy(source.load().train_images).zero_()
    source.load()
    assert source.reads == 1


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def overwrite(path):
    path.write_bytes(bytes(len(path.read_bytes())))


@pytest.mark.parametrize("file", ["train_images.npy", "test_labels.npy", "entry.json"])
@pytest.mark.parametrize("damage", [truncate, overwrite, os.unlink])
def test_a_damaged_entry_is_made_again(source, file, damage):
    source.load()
    damage(source.entry / file)
    source.load()
    source.load()
    assert source.reads == 2
    assert not source.folders[1].exists()


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.array([{}], dtype=object), "Python objects"),
        (np.zeros(10, np.int32), "must hold int64 in 1-D, got int32 in 1-D"),
        (np.zeros((2, 5), np.int64), "must hold int64 in 1-D, got int64 in 2-D"),
        (np.zeros(10, "V8"), "must hold int64"),
    ],
)
def test_an_array_of_another_kind_is_refused_by_name(source, array, says):
    source.load()
    np.save(source.entry / "test_labels.npy", array)
    with pytest.raises(DataError, match=says) as caught:
        cache.read_entry(source.entry)
    assert str(caught.value).startswith(str(source.entry / "test_labels.npy"))


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<i8', 'fortran_order': False, 'shape': None, }",
        "{'descr': '<i8', 'fortran_order': False, 'shape': (None,), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (10,), }",
        "{'descr': 'no kind', 'fortran_order': False, 'shape': (10,), }",
        "__import__('os').system('true')",
    ],
)
def test_a_header_of_no_array_is_refused_by_name(source, header):
    source.load()
    text = header.ljust(117).encode() + b"\n"
    (source.entry / "test_labels.npy").write_bytes(b"\x93NUMPY\x01\x00\x76\x00" + text + bytes(80))
    with pytest.raises(DataError, match=r"test_labels.npy: must be a whole array of numbers"):
        cache.read_entry(source.entry)


def test_a_place_that_cannot_be_written_gives_way_to_the_next(source):
    source.folders[0].write_text("a file where the folder should be")  # holds for root too, unlike a permission
    source.load()
    source.load()
    assert source.reads == 1
    assert (source.folders[1] / "digits").is_dir()


def test_a_full_disk_leaves_nothing_half_written(source, monkeypatch):
    def refuse(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.os, "fsync", refuse)
    source.load()
    assert [list(folder.iterdir()) for folder in source.folders] == [[], []]


def test_many_at_once_all_get_the_arrays(source):
    threads = [threading.Thread(target=source.load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_same(cache.read_entry(source.entry, verify=True).arrays, source.arrays)
    assert [path.name for path in source.folders[0].iterdir()] == ["digits"]
    assert not source.folders[1].exists()
