"""Files that unpack to far more than they are: refused, with the memory that a right file would take."""

import gzip
import io
import pickle
import struct
import tarfile
import tracemalloc
import zipfile

import numpy as np
import pytest
from PIL import Image

from sfao.lab.data import fetch, restricted_pickle, tiny_imagenet
from sfao.lab.data.cifar import CIFAR10_FORMAT as CIFAR10
from sfao.lab.data.errors import DataError
from sfao.lab.data.mnist import read_images, read_labels

#: Less than any of the bombs would take, several times what the small files of a data set take.
MOST_MEMORY = 100 << 20
#: A gigabyte of zeros in a megabyte: packed files may follow each other.
ZEROS = gzip.compress(bytes(1 << 20)) * 1000
#: The size of files that are all hole.
HOLE = 10 << 30


def packed(header):
    return gzip.compress(header) + ZEROS


def hole(path):
    with path.open("wb") as file:
        file.truncate(HOLE)


def write(content):
    return lambda path: path.write_bytes(content)


def double(levels=60):
    """A tuple of two of the tuple before, and so on: small as references, without end for who walks it."""
    return b"K\x01" + b"q\x00h\x00\x86" * levels


def jpeg(width, height):
    """A small picture whose header says that it is large."""
    file = io.BytesIO()
    Image.new("RGB", (64, 64)).save(file, "JPEG")
    content = bytearray(file.getvalue())
    at = content.index(b"\xff\xc0") + 5
    content[at : at + 4] = struct.pack(">HH", height, width)
    return bytes(content)


def tar_bomb(path):
    member = tarfile.TarInfo("bomb")
    member.size = HOLE
    path.write_bytes(gzip.compress(member.tobuf()) + ZEROS)


def tar_of_many(path):
    path.write_bytes(gzip.compress(tarfile.TarInfo("file").tobuf() * 2000))


def zip_bomb(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(64):
            archive.writestr(f"bomb{number}", bytes(1 << 20))


def unpack(path):
    fetch.extract(path, path.parent / "out")


BATCH = CIFAR10.read_batch
#: {name: (file name, what writes it, what reads it)}
BOMBS = {
    "gzip, more images than the header says": (
        "images.gz",
        write(packed(struct.pack(">4I", 0x803, 10, 28, 28))),
        read_images,
    ),
    "gzip, a header of 4 billion images": (
        "images.gz",
        write(packed(struct.pack(">4I", 0x803, 2**32 - 1, 28, 28))),
        read_images,
    ),
    "gzip, a header of huge images": (
        "images.gz",
        write(packed(struct.pack(">4I", 0x803, 1, 65535, 65535))),
        read_images,
    ),
    "gzip, a header of 4 billion labels": (
        "labels.gz",
        write(packed(struct.pack(">2I", 0x801, 2**32 - 1))),
        lambda path: read_labels(path, 10),
    ),
    "an idx file that is all hole": ("images", hole, read_images),
    "a batch that is all hole": ("data_batch_1.bin", hole, BATCH),
    "a pickle that is all hole": ("data_batch_1", hole, BATCH),
    "a pickle that repeats a text": (
        "data_batch_1",
        write(
            b"\x80\x02c_codecs\nencode\nq\x00X" + struct.pack("<I", 1 << 20) + b"a" * (1 << 20) + b"q\x01]("
            b"" + b"h\x00h\x01X\x06\x00\x00\x00latin1\x86R" * 2000 + b"e."
        ),
        BATCH,
    ),
    "a pickle of endless keys": ("data_batch_1", write(b"\x80\x02}" + double() + b"K\x01s."), BATCH),
    "a pickle of endless keys at once": ("data_batch_1", write(b"\x80\x02}(" + double() + b"K\x01u."), BATCH),
    "a pickle of endless keys, old": ("data_batch_1", write(b"(" + double() + b"K\x01d."), BATCH),
    "a pickle of an endless kind": ("data_batch_1", write(b"\x80\x02cnumpy\ndtype\n" + double() + b"\x85R."), BATCH),
    "a pickle of an endless set": ("data_batch_1", write(b"\x80\x04\x8f(" + double() + b"\x90."), BATCH),
    "a pickle that reserves memory": ("data_batch_1", write(b"\x80\x05\x96" + struct.pack("<Q", HOLE) + b"."), BATCH),
    "a pickle with a far index": ("data_batch_1", write(b"\x80\x02}r\xff\xff\xff\x7f."), BATCH),
    "a pickle of very many things": ("data_batch_1", write(b"\x80\x02](" + b"}" * (1 << 20) + b"e."), BATCH),
    "a pickle of a very large number": (
        "data_batch_1",
        write(pickle.dumps({b"labels": [1 << 10**6]}, protocol=2).replace(b"labels", b"labelz")),
        BATCH,
    ),
    "JPEG, 65,500 x 65,500": ("a.JPEG", write(jpeg(65500, 65500)), tiny_imagenet.decode),
    "JPEG, 12,000 x 10,000": ("a.JPEG", write(jpeg(12000, 10000)), tiny_imagenet.decode),
    "a table that is all hole": ("wnids.txt", hole, tiny_imagenet.read_class_numbers),
    "tar, a member of 10 GB": ("a.tar.gz", tar_bomb, unpack),
    "tar, too many members": ("a.tar.gz", tar_of_many, unpack),
    "zip, 64 MB for 1": ("a.zip", zip_bomb, unpack),
}


def check(path, read):
    tracemalloc.start()
    said = None
    try:
        read(path)
    except DataError as error:
        said = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert said is not None, "it was taken for data"
    assert len(said.splitlines()) <= 2, f"{len(said.splitlines())} lines"
    assert len(said) < 500, f"{len(said)} letters"
    assert str(path) in said, f"it does not name the file: {said}"
    assert peak < MOST_MEMORY, f"{peak >> 20} MB were taken"
    assert not (path.parent / "out").exists(), "something was unpacked"


def test_a_bomb_is_refused_before_it_is_unpacked(attack, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "MAX_MEMBERS", 1000)  # as many as allowed take a while to count
    monkeypatch.setattr(fetch, "MAX_UNPACKED", 1 << 20)
    monkeypatch.setattr(restricted_pickle, "MAX_OPCODES", 10_000)
    bombs = attack("data files", "gzip, pickle, JPEG, tar and zip bombs, files that are all hole")
    for number, (name, (file, prepare, read)) in enumerate(BOMBS.items()):
        path = tmp_path / str(number) / file
        path.parent.mkdir()
        prepare(path)
        bombs.try_it(name, lambda path=path, read=read: check(path, read))
        path.unlink()


@pytest.mark.parametrize("protocol", range(6))
def test_what_is_no_bomb_is_read(tmp_path, protocol):
    path = tmp_path / "data_batch_1"
    images = {b"data": np.zeros((3, 3072), np.uint8), b"labels": [1, 2, 3], b"filenames": [b"a"] * 3}
    path.write_bytes(pickle.dumps(images, protocol=protocol))
    if protocol < 5:  # 5 has another way to write arrays, which no batch has
        assert BATCH(path)[0].shape == (3, 3, 32, 32)
