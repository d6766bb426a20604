"""CIFAR-10 and CIFAR-100: 60,000 color images, in a python version (pickles) and a binary one (plain records).

The binary version is downloaded: the same images, and no pickle.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sfao.lab.data.arrays import Arrays, Images, Labels, check_labels, check_same_count
from sfao.lab.data.description import DatasetDescription, KnownFile, Layout, parse_known
from sfao.lab.data.errors import DataError
from sfao.lab.data.restricted_pickle import load_pickle

PIXELS = 3 * 32 * 32
#: The most images of one file.
MAX_COUNT = 50000
#: A pickle may take two bytes for a pixel, and holds names of files too.
MAX_PICKLE = MAX_COUNT * (2 * PIXELS + 200)

#: The images and labels of one file.
Batch = tuple[Images, Labels]


@dataclass(frozen=True)
class CifarFormat:
    """The differences between the two data sets."""

    classes: int
    python_folder: str
    binary_folder: str
    #: The stems of the training files, and of the test file.
    train: tuple[str, ...]
    test: str
    #: The key of the labels in the python version.
    labels: bytes
    #: Bytes before the pixels of a binary record; the label is the last of them.
    label_bytes: int

    def list_layouts(self, root: Path) -> list[Layout]:
        """List both versions, the binary one first: it is read faster, and there is no pickle in it."""
        return [
            self._make_layout(root / self.binary_folder, ".bin"),
            self._make_layout(root / self.python_folder, ""),
        ]

    def _make_layout(self, folder: Path, suffix: str) -> Layout:
        train = [folder / (stem + suffix) for stem in self.train]
        test = folder / (self.test + suffix)

        def read() -> Arrays:
            images, labels = zip(*(self.read_batch(path) for path in train), strict=True)
            return Arrays(np.concatenate(images), np.concatenate(labels), *self.read_batch(test))

        return Layout(folder, (*train, test), read)

    def read_batch(self, path: Path) -> Batch:
        """Read a file of either version."""
        return self._read_binary(path) if path.suffix == ".bin" else self._read_python(path)

    def _read_binary(self, path: Path) -> Batch:
        record, size = self.label_bytes + PIXELS, path.stat().st_size
        if not size or size % record:
            raise DataError(f"{path}: must hold whole records of {record} bytes, got {size} bytes")
        if size // record > MAX_COUNT:
            raise DataError(f"{path}: must hold at most {MAX_COUNT} records, got {size // record}")
        rows = np.fromfile(path, np.uint8, size).reshape(-1, record)
        labels = check_labels(path, rows[:, self.label_bytes - 1], self.classes)
        return rows[:, self.label_bytes :].reshape(-1, 3, 32, 32), labels

    def _read_python(self, path: Path) -> Batch:
        batch = load_pickle(path, MAX_PICKLE)
        data, given = batch.get(b"data"), batch.get(self.labels)
        if not isinstance(data, np.ndarray) or data.ndim != 2 or data.shape[1] != PIXELS:
            found = f"an array of shape {data.shape}" if isinstance(data, np.ndarray) else type(data).__name__
            raise DataError(f"{path}: 'data' must be an array of {PIXELS} bytes a row, got {found}")
        if not isinstance(given, list) or not all(type(label) is int and abs(label) < 2**63 for label in given):
            raise DataError(f"{path}: {self.labels.decode()!r} must be a list of integers, got {type(given).__name__}")
        labels = check_labels(path, np.array(given, np.int64), self.classes)
        images = np.ascontiguousarray(data).reshape(-1, 3, 32, 32)
        check_same_count(path, images, path, labels)
        return images, labels


CIFAR10_FORMAT = CifarFormat(
    classes=10,
    python_folder="cifar-10-batches-py",
    binary_folder="cifar-10-batches-bin",
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    labels=b"labels",
    label_bytes=1,
)

# The coarse label comes first and is not used.
CIFAR100_FORMAT = CifarFormat(
    classes=100,
    python_folder="cifar-100-python",
    binary_folder="cifar-100-binary",
    train=("train",),
    test="test",
    labels=b"fine_labels",
    label_bytes=2,
)


def _describe(
    format: CifarFormat,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    archive: str,
    known_files: tuple[KnownFile, ...],
) -> DatasetDescription:
    """Return the description of one of the two; mean and deviation are those of all training pixels."""
    return DatasetDescription(
        name=f"cifar{format.classes}",
        title=f"CIFAR-{format.classes} color images",
        terms="Krizhevsky 2009; no license stated, to be cited",
        classes=format.classes,
        train=50000,
        test=10000,
        mean=mean,
        std=std,
        list_layouts=format.list_layouts,
        known_files=known_files,
        downloads=parse_known(archive),
        mirrors=("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/"),
        folder=format.binary_folder,
    )


CIFAR10_BINARY = """
data_batch_1.bin 30730000 cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5
data_batch_2.bin 30730000 a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed
data_batch_3.bin 30730000 bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67
data_batch_4.bin 30730000 014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48
data_batch_5.bin 30730000 755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add
test_batch.bin 30730000 8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b
"""
#: As the publisher gives them, in MD5.
CIFAR10_PYTHON = """
data_batch_1 31035704 c99cafc152244af753f735de768cd75f
data_batch_2 31035320 d4bba439e000b95fd0a9bffe97cbabec
data_batch_3 31035999 54ebc095f3ab1f0389bbae665268c751
data_batch_4 31035696 634d18415352ddfa80567beed471001a
data_batch_5 31035623 482c414d41f54cd18b22e5b47cb7c3cb
test_batch 31035526 40351d587109b95175f43aff81a1287e
"""
CIFAR100_BOTH = """
train.bin 153700000 f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29
test.bin 30740000 d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a
train 155249918 735e79b04f092ca3d2e6d07f368c0a7d70d48c48d28865950cc24454cf45129b
test 31049707 4b67687d9933c4db8f0831104447f15b93774f4f464bd0516f0f0f2ac83b7864
"""

CIFAR10 = _describe(
    CIFAR10_FORMAT,
    (0.4914, 0.4822, 0.4465),
    (0.2470, 0.2435, 0.2616),
    "cifar-10-binary.tar.gz 170052171 c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    parse_known(CIFAR10_BINARY) + parse_known(CIFAR10_PYTHON, "md5"),
)
CIFAR100 = _describe(
    CIFAR100_FORMAT,
    (0.5071, 0.4865, 0.4409),
    (0.2673, 0.2564, 0.2762),
    "cifar-100-binary.tar.gz 168513733 58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    parse_known(CIFAR100_BOTH),
)
