"""Getting a dataset from a real server, into a folder that may hold something already."""

import errno
import io
import os
import zipfile
from types import SimpleNamespace

import pytest
from filelock import FileLock

from sfao.lab.data.dataset import load_dataset
from sfao.lab.data.errors import DataError, DownloadError
from sfao.lab.data.fetching import get as module
from sfao.lab.data.fetching.get import fetch, get_dataset
from sfao.lab.data.publication import Download, Publication
from sfao.lab.data.sets import DATASETS, tiny_imagenet
from tests.lab.data.fetching.published import (
    known,
    publish_cifar10,
    publish_mnist,
    small_cifar10,
    small_mnist,
    tgz,
)
from tests.lab.data.fetching.server import serving
from tests.lab.data.publishers import write_tiny_imagenet

ARCHIVE = tgz({f"cifar-10-batches-bin/{name}": content for name, content in small_cifar10().items()})


def contents(folder):
    """Every file that a user would see."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: content for name, content in files.items() if not name.endswith((".lock", ".seal", ".files"))}


@pytest.fixture
def root(tmp_path):
    return tmp_path / "data"


def test_files_are_fetched_checked_and_readable(root, monkeypatch):
    packed, _ = small_mnist()
    with serving(files=packed) as site:
        publish_mnist(monkeypatch, [site.url])
        results = get_dataset("mnist", root)
        assert [str(result.status) for result in results] == ["ok"] * 4
        get_dataset("mnist", root)
    assert len(site.requests) == 4  # the second time nothing was asked for
    assert contents(root) == {f"MNIST/raw/{name}": content for name, content in packed.items()}
    assert len(load_dataset("mnist", root).train_images) == 20


def test_only_what_is_missing_is_fetched(root, monkeypatch):
    packed, unpacked = small_mnist()
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True)
    (folder / "train-images-idx3-ubyte").write_bytes(unpacked["train-images-idx3-ubyte"])
    with serving(files=packed) as site:
        publish_mnist(monkeypatch, [site.url])
        get_dataset("mnist", root)
    assert len(site.requests) == 3


def test_an_archive_is_fetched_unpacked_and_removed(root, monkeypatch):
    told = []
    with serving(files={"cifar-10-binary.tar.gz": ARCHIVE}) as site:
        publish_cifar10(monkeypatch, [site.url], ARCHIVE)
        get_dataset("cifar10", root, progress=lambda *progress: told.append(progress))
    assert contents(root) == {f"cifar-10-batches-bin/{name}": content for name, content in small_cifar10().items()}
    assert [what for what, done, total in told if done == total] == [
        "cifar-10-binary.tar.gz",
        "unpacking cifar-10-binary.tar.gz",
    ]


def test_an_archive_that_someone_put_there_is_used_and_kept(root, monkeypatch):
    root.mkdir()
    (root / "cifar-10-binary.tar.gz").write_bytes(ARCHIVE)
    publish_cifar10(monkeypatch, [], ARCHIVE)
    get_dataset("cifar10", root)
    assert len(contents(root)) == 7


def test_another_archive_of_that_name_is_left_alone(root, monkeypatch):
    root.mkdir()
    (root / "cifar-10-binary.tar.gz").write_bytes(b"mine")
    publish_cifar10(monkeypatch, [], ARCHIVE)
    with pytest.raises(DataError, match="it is left alone"):
        get_dataset("cifar10", root)
    assert contents(root) == {"cifar-10-binary.tar.gz": b"mine"}


@pytest.mark.parametrize(("content", "status"), [(b"mine", "differs"), (bytes(3073), "partial")])
def test_other_data_in_its_place_is_left_alone(root, monkeypatch, content, status):
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    (folder / "data_batch_1.bin").write_bytes(content)
    with serving(files={"cifar-10-binary.tar.gz": ARCHIVE}) as site:
        publish_cifar10(monkeypatch, [site.url], ARCHIVE)
        with pytest.raises(DataError, match=f"data_batch_1.bin is not the published file \\({status}") as caught:
            get_dataset("cifar10", root)
    assert len(str(caught.value).splitlines()) == 2
    assert site.requests == []
    assert contents(root) == {"cifar-10-batches-bin/data_batch_1.bin": content}


def test_a_folder_that_lacks_files_is_filled(root, monkeypatch):
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    (folder / "test_batch.bin").write_bytes(small_cifar10()["test_batch.bin"])
    (folder / "readme.html").write_bytes(b"mine")
    files = {**small_cifar10(), "readme.html": b"theirs"}
    archive = tgz({f"cifar-10-batches-bin/{name}": content for name, content in files.items()})
    with serving(files={"cifar-10-binary.tar.gz": archive}) as site:
        publish_cifar10(monkeypatch, [site.url], archive)
        get_dataset("cifar10", root)
    files["readme.html"] = b"mine"
    assert contents(root) == {f"cifar-10-batches-bin/{name}": content for name, content in files.items()}


@pytest.mark.parametrize("evil", ["../evil", "/evil", "cifar-10-batches-bin/../../evil"])
def test_an_archive_that_climbs_out_leaves_nothing(root, monkeypatch, evil):
    archive = tgz({"cifar-10-batches-bin/test_batch.bin": b"", evil: b"evil"})
    with serving(files={"cifar-10-binary.tar.gz": archive}) as site:
        publish_cifar10(monkeypatch, [site.url], archive)
        with pytest.raises(DataError, match="must stay inside the folder"):
            get_dataset("cifar10", root)
    assert set(contents(root.parent)) == {"data/cifar-10-binary.tar.gz"}


def test_an_archive_without_the_folder_is_refused(root, monkeypatch):
    archive = tgz({"elsewhere/test_batch.bin": b""})
    with serving(files={"cifar-10-binary.tar.gz": archive}) as site:
        publish_cifar10(monkeypatch, [site.url], archive)
        with pytest.raises(DataError, match="must hold the folder cifar-10-batches-bin"):
            get_dataset("cifar10", root)


def test_an_archive_whose_files_are_not_the_published_ones_is_not_called_good(root, monkeypatch):
    archive = tgz({f"cifar-10-batches-bin/{name}": bytes(3073) for name in small_cifar10()})
    with serving(files={"cifar-10-binary.tar.gz": archive}) as site:
        publish_cifar10(monkeypatch, [site.url], archive)
        with pytest.raises(DataError, match="must be the published file, got partial"):
            get_dataset("cifar10", root)


def test_a_zip_is_unpacked_as_well(root, tmp_path):
    folder = write_tiny_imagenet(tmp_path / "original", validation=2)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path in folder.rglob("*"):
            archive.write(path, path.relative_to(folder.parent))
    root.mkdir()
    with serving(files={"tiny-imagenet-200.zip": buffer.getvalue()}) as site:
        download = Download(known("tiny-imagenet-200.zip", buffer.getvalue()), (site.url,))
        fetch("tiny-imagenet", Publication("tiny-imagenet-200", (download,), True, 10**6), root)
    assert contents(root / "tiny-imagenet-200") == contents(folder)
    assert tiny_imagenet.list_layouts(root)[0].read().train_images.shape == (200, 3, 64, 64)


def test_without_mirrors_and_npm_nothing_is_left_but_the_reason(root, monkeypatch):
    with serving() as site:
        publish_mnist(monkeypatch, [site.url, site.url])
        with pytest.raises(DownloadError, match="answered 404"):
            get_dataset("mnist", root)
    assert contents(root) == {}


def test_a_disk_that_is_too_full_is_noticed_first(root, monkeypatch):
    publish_mnist(monkeypatch, [])
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: SimpleNamespace(free=100_000))
    with pytest.raises(DataError, match="MB free for `mnist`, got 0 MB"):
        get_dataset("mnist", root)


def test_a_disk_that_fills_up_is_named_in_two_lines(root, monkeypatch):
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True)
    (folder / "train-images-idx3-ubyte.gz.part").symlink_to("/dev/full")
    with serving(files=small_mnist()[0]) as site:
        publish_mnist(monkeypatch, [site.url])
        with pytest.raises(DataError, match=os.strerror(errno.ENOSPC)) as caught:
            get_dataset("mnist", root)
    assert len(str(caught.value).splitlines()) == 2


def test_two_at_once_do_not_mix(root, monkeypatch):
    publish_mnist(monkeypatch, [])
    root.mkdir()
    with FileLock(root / ".get-mnist.lock"), pytest.raises(DataError, match="by another process"):
        get_dataset("mnist", root)


def test_what_a_killed_process_left_is_cleared(root, monkeypatch):
    (root / ".get-mnist-abc").mkdir(parents=True)
    (root / ".get-mnist-abc" / "half").write_bytes(b"half")
    with serving(files=small_mnist()[0]) as site:
        publish_mnist(monkeypatch, [site.url])
        get_dataset("mnist", root)
    assert not (root / ".get-mnist-abc").exists()


def test_what_is_embedded_needs_no_fetching(root):
    (result,) = get_dataset("mnist-5k", root)
    assert str(result.status) == "ok"
    assert not root.exists()


def test_no_two_downloads_go_to_one_place_and_every_digest_is_well_formed(root):
    publications = [description.publication for description in DATASETS.values() if not description.embedded]
    downloads = [item for publication in publications for item in publication.downloads]
    targets = [module._get_target(each, root, item) for each in publications for item in each.downloads]
    assert len(set(targets)) == len(downloads)
    for item in downloads:
        algorithm, value = item.file.digest.split(":")
        assert (algorithm, len(value)) == ("sha256", 64)
        assert all(url.startswith("http") and url.endswith("/" + item.file.name) for url in item.urls)
