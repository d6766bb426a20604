"""The cache: read once, whole or not at all, never in the way."""

import os
import threading

import numpy as np
import pytest
import torch

from sfao.data import cache
from sfao.data.formats.file_layout import FileLayout
from tests.data.publishers import assert_same, digits


class Source:
    """A layout that counts how often it is read."""

    def __init__(self, folder):
        folder.mkdir(exist_ok=True)
        self.file = folder / "digits"
        self.file.write_bytes(b"as published")
        self.arrays = digits()
        self.reads = 0
        self.layout = FileLayout(folder, (self.file,), self.read)

    def read(self):
        self.reads += 1
        return self.arrays


@pytest.fixture
def source(tmp_path):
    return Source(tmp_path / "source")


@pytest.fixture
def folders(tmp_path):
    return [tmp_path / "first", tmp_path / "second"]


def load(source, folders):
    arrays = cache.load_cached("digits", source.layout, folders)
    assert_same(arrays, source.arrays)
    return arrays


def entry(folder):
    (found,) = folder.iterdir()
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


@pytest.mark.parametrize("change", ["content", "time"])
def test_a_changed_source_is_read_again(source, folders, change):
    load(source, folders)
    if change == "content":
        status = source.file.stat()
        source.file.write_bytes(b"another length")
        os.utime(source.file, ns=(status.st_atime_ns, status.st_mtime_ns))
    else:
        os.utime(source.file, ns=(1, 1))
    source.arrays = digits(seed=1)
    load(source, folders)
    assert source.reads == 2


def test_another_folder_with_the_same_files_is_another_source(tmp_path, folders):
    one, other = Source(tmp_path / "one"), Source(tmp_path / "other")
    other.arrays = digits(seed=1)
    os.utime(one.file, ns=(1, 1))
    os.utime(other.file, ns=(1, 1))
    load(one, folders)
    load(other, folders)


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
        ("train_images.npy", truncate),
        ("train_images.npy", overwrite),
        ("test_images.npy", os.unlink),
        ("test_labels.npy", truncate),
        ("test_labels.npy", flip_last_byte),
        ("checks.json", truncate),
        ("checks.json", overwrite),
        ("checks.json", os.unlink),
    ],
)
def test_a_damaged_entry_is_rebuilt(source, folders, file, damage):
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
    def save_some(file, array):
        file.write(b"some")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.np, "save", save_some)
    load(source, folders)
    assert [list(folder.iterdir()) for folder in folders] == [[], []]


def test_many_at_once_all_get_the_arrays(source, folders):
    threads = [threading.Thread(target=load, args=(source, folders)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_same(cache.read_entry(entry(folders[0])), source.arrays)
    assert not folders[1].exists()
