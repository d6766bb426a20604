"""CIFAR-100: 60,000 colour images of 100 classes.

It is downloaded in the binary version, which holds the same images as the python version and no pickle.
"""

from sfao.lab.data.description import DatasetDescription
from sfao.lab.data.file_check import DigestCheck
from sfao.lab.data.formats.cifar import MIRRORS, TERMS, CifarFormat
from sfao.lab.data.publication import Download, KnownFile, Publication

# The coarse label comes first and is not used.
FORMAT = CifarFormat(
    classes=100,
    python_folder="cifar-100-python",
    binary_folder="cifar-100-binary",
    train=("train",),
    test="test",
    labels=b"fine_labels",
    label_bytes=2,
)

ARCHIVE = KnownFile(
    "cifar-100-binary.tar.gz",
    168513733,
    "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
)

BINARY_FILES = (
    KnownFile("train.bin", 153700000, "sha256:f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),
    KnownFile("test.bin", 30740000, "sha256:d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
)

PYTHON_FILES = (
    KnownFile("train", 155249918, "sha256:735e79b04f092ca3d2e6d07f368c0a7d70d48c48d28865950cc24454cf45129b"),
    KnownFile("test", 31049707, "sha256:4b67687d9933c4db8f0831104447f15b93774f4f464bd0516f0f0f2ac83b7864"),
)

CIFAR100 = DatasetDescription(
    name="cifar100",
    title="CIFAR-100 colour images",
    terms=TERMS,
    classes=FORMAT.classes,
    train=50000,
    test=10000,
    # Of all training pixels.
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    list_layouts=FORMAT.list_layouts,
    verify=DigestCheck((*BINARY_FILES, *PYTHON_FILES), FORMAT.read_batch),
    publication=Publication(
        folder=FORMAT.binary_folder,
        downloads=(Download(ARCHIVE, MIRRORS),),
        archive=True,
        unpacked_size=sum(file.size for file in BINARY_FILES),
    ),
)
