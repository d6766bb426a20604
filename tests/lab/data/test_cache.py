"""The cache: read once, whole or not at all, never in the way."""

import os
import threading

import numpy as np
import pytest
import torch

from sfao.lab.data import cache, proofs
from sfao.lab.data.array_digests import digest_arrays
from tests.lab.data.publishers import assert_same, digits


class Source:
    """Arrays that count how often they are read."""

    def __init__(self):
        self.arrays = digits()
        self.digest = "sha256:" + "0" * 64
        self.reads = 0

    def read(self):
        self.reads += 1
        return self.arrays


@pytest.fixture
def source():
    return Source()


@pytest.fixture
def folders(tmp_path):
    return [tmp_path / "first", tmp_path / "second"]


def load(source, folders):
    found = cache.find_cached("digits", source.digest, folders)
    if found is None:
        found = cache.keep_cached("digits", source.digest, folders, source.read())
    assert_same(found.arrays, source.arrays)
    assert found.digest == digest_arrays(source.arrays)
    return found.arrays


def entry(folder):
    (found,) = (path for path in folder.iterdir() if path.is_dir())
    return found


def test_the_second_load_maps_what_the_first_one_wrote(source, folders):
    load(source, folders)
    arrays = load(source, folders)
    assert source.reads == 1
    assert isinstance(arrays.train_images, np.memmap)
    assert not folders[1].exists()


def test_writing_to_what_was_loaded_does_not_change_the_cache(source, folders):
    load(source, folders)
    torch.from_numpy(load(source, folders).train_images).zero_()
    load(source, folders)
    assert source.reads == 1


def test_another_source_is_another_entry(source, folders):
    load(source, folders)
    source.digest = "sha256:" + "1" * 64
    source.arrays = digits(seed=1)
    load(source, folders)
    assert source.reads == 2
    assert len(cache.list_entries("digits", folders)) == 2


def test_untouched_files_are_read_once(source, folders, monkeypatch):
    monkeypatch.setattr(proofs, "SETTLED_SECONDS", 0)
    load(source, folders)
    monkeypatch.setattr(cache, "check_entry", lambda entry: pytest.fail("read again"))
    load(source, folders)
    os.utime(entry(folders[0]) / "train_images.bin", ns=(1, 1))
    with pytest.raises(pytest.fail.Exception, match="read again"):
        load(source, folders)


def test_files_that_have_just_been_written_are_read_again(source, folders):
    load(source, folders)
    assert not list(folders[0].glob("*.checked"))


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def overwrite(path):
    path.write_bytes(bytes(len(path.read_bytes())))


def flip_last_byte(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("train_images.bin", truncate),
        ("train_images.bin", overwrite),
        ("train_images.bin", flip_last_byte),
        ("test_images.bin", os.unlink),
        ("test_labels.bin", truncate),
        ("test_labels.bin", flip_last_byte),
        ("checks.json", truncate),
        ("checks.json", overwrite),
        ("checks.json", os.unlink),
    ],
)
def test_a_damaged_entry_is_rebuilt(source, folders, file, damage, monkeypatch):
    monkeypatch.setattr(proofs, "SETTLED_SECONDS", 0)
    load(source, folders)
    damage(entry(folders[0]) / file)
    load(source, folders)
    assert source.reads == 2
    load(source, folders)
    assert source.reads == 2
    assert not folders[1].exists()


def test_a_place_that_cannot_be_written_gives_way_to_the_next(source, folders):
    folders[0].write_text("a file where the folder should be")  # holds for root too, unlike a permission
    load(source, folders)
    load(source, folders)
    assert source.reads == 1
    assert entry(folders[1]).is_dir()


def test_no_place_to_write_is_no_failure(source, folders):
    for folder in folders:
        folder.write_text("a file where the folder should be")
    load(source, folders)
    load(source, folders)
    assert source.reads == 2


def test_a_full_disk_leaves_nothing_half_written(source, folders, monkeypatch):
    def refuse(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.os, "fsync", refuse)
    load(source, folders)
    assert [list(folder.iterdir()) for folder in folders] == [[], []]


def test_many_at_once_all_get_the_arrays(source, folders):
    threads = [threading.Thread(target=load, args=(source, folders)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_same(cache.read_entry(entry(folders[0]), folders).arrays, source.arrays)
    assert not folders[1].exists()
