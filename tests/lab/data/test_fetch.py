"""Getting a data set from a server, into a folder that may hold something already; archives stay in their folder."""

import io
import stat
import tarfile
import zipfile
from dataclasses import replace

import pytest

from sfao.lab.data import fetch
from sfao.lab.data.dataset import load_dataset
from sfao.lab.data.errors import DataError, DownloadError
from sfao.lab.data.fetch import extract, get_dataset
from sfao.lab.data.sets import DATASETS
from tests.lab.data.publishers import (
    known,
    publish_cifar10,
    publish_mnist,
    serving,
    small_cifar10,
    small_mnist,
    tgz,
    write_tiny_imagenet,
)

ARCHIVE = tgz({f"cifar-10-batches-bin/{name}": content for name, content in small_cifar10().items()})


def contents(folder):
    """Every file that a user would see."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".sfao-cache" not in path.parts
    }


@pytest.fixture
def root(tmp_path):
    return tmp_path / "data"


def test_files_are_downloaded_verified_and_readable(root, monkeypatch):
    packed, _ = small_mnist()
    told = []
    with serving(packed) as site:
        publish_mnist(monkeypatch, [site.url])
        results = get_dataset("mnist", root, progress=lambda *work: told.append(work))
        assert [str(result.status) for result in results] == ["ok"] * 4
        get_dataset("mnist", root)
    assert len(site.requests) == 4  # the second time nothing was asked for
    assert contents(root) == {f"MNIST/raw/{name}": content for name, content in packed.items()}
    assert load_dataset("mnist", root).published is True
    size = len(packed["train-images-idx3-ubyte.gz"])
    assert ("train-images-idx3-ubyte.gz", size, size) in told


def test_only_missing_files_are_downloaded(root, monkeypatch):
    packed, unpacked = small_mnist()
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True)
    (folder / "train-images-idx3-ubyte").write_bytes(unpacked["train-images-idx3-ubyte"])
    with serving(packed) as site:
        publish_mnist(monkeypatch, [site.url])
        get_dataset("mnist", root)
    assert len(site.requests) == 3
    assert load_dataset("mnist", root).published is True


def test_the_next_mirror_is_asked_and_a_wrong_file_never_appears(root, monkeypatch):
    packed, _ = small_mnist()
    with serving() as empty, serving({name: b"other" + bytes(9) for name in packed}) as wrong, serving(packed) as good:
        publish_mnist(monkeypatch, [empty.url, wrong.url])
        with pytest.raises(DownloadError, match=r"could not be downloaded\n.*404 .*; .*hash") as caught:
            get_dataset("mnist", root)
        assert len(str(caught.value).splitlines()) == 2
        assert contents(root) == {}
        publish_mnist(monkeypatch, [empty.url, wrong.url, good.url])
        get_dataset("mnist", root)
    assert contents(root) == {f"MNIST/raw/{name}": content for name, content in packed.items()}


def test_an_answer_that_is_longer_than_the_file_ends_the_download(root):
    file = known("file", b"short")
    with serving({"file": bytes(1 << 22)}) as site, pytest.raises(DownloadError, match="must send 5 bytes, got more"):
        fetch.download(file, [site.url], root, lambda *_: None)
    assert contents(root) == {}


def test_every_mirror_speaks_https_and_every_download_has_a_sha256():
    for description in DATASETS.values():
        assert all(mirror.startswith("https://") for mirror in description.mirrors)
        assert bool(description.mirrors) == bool(description.downloads)
        assert all(file.digest.startswith("sha256:") and len(file.digest) == 71 for file in description.downloads)


def test_an_archive_is_unpacked_and_removed(root, monkeypatch):
    with serving({"cifar-10-binary.tar.gz": ARCHIVE}) as site:
        publish_cifar10(monkeypatch, [site.url], ARCHIVE)
        assert {str(result.status) for result in get_dataset("cifar10", root)} == {"ok"}
    assert contents(root) == {f"cifar-10-batches-bin/{name}": content for name, content in small_cifar10().items()}


def test_a_given_archive_is_used_and_kept(root, monkeypatch):
    root.mkdir()
    (root / "cifar-10-binary.tar.gz").write_bytes(ARCHIVE)
    publish_cifar10(monkeypatch, [], ARCHIVE)
    get_dataset("cifar10", root)
    assert (root / "cifar-10-binary.tar.gz").read_bytes() == ARCHIVE
    assert load_dataset("cifar10", root).published is True


def test_files_that_are_not_published_are_left_alone(root, monkeypatch):
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    (folder / "data_batch_1.bin").write_bytes(bytes(3073))
    publish_cifar10(monkeypatch, [], ARCHIVE)
    with pytest.raises(DataError, match=r"data_batch_1.bin is not the published file: .*\nIt is left alone"):
        get_dataset("cifar10", root)
    assert contents(root) == {"cifar-10-batches-bin/data_batch_1.bin": bytes(3073)}


def test_images_out_of_the_published_archive_are_published(root, tmp_path, monkeypatch):
    folder = write_tiny_imagenet(tmp_path / "original", validation=2)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path in folder.rglob("*"):
            archive.write(path, path.relative_to(folder.parent))
    file = known("tiny-imagenet-200.zip", buffer.getvalue())
    with serving({file.name: buffer.getvalue()}) as site:
        description = replace(DATASETS["tiny-imagenet"], downloads=(file,), mirrors=(site.url,), train=200, test=2)
        monkeypatch.setitem(DATASETS, "tiny-imagenet", description)
        assert {str(result.status) for result in get_dataset("tiny-imagenet", root)} == {"ok"}
    assert contents(root / "tiny-imagenet-200") == contents(folder)
    assert load_dataset("tiny-imagenet", root).published is True
    assert load_dataset("tiny-imagenet", folder.parent).published is False


# Archives


def tar_of(path, *members):
    with tarfile.open(path, "w:gz") as archive:
        for info, content in members:
            if isinstance(info, str):
                info = tarfile.TarInfo(info)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def zip_of(path, *members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def special(kind, linkname=""):
    info = tarfile.TarInfo("evil")
    info.type, info.linkname = kind, linkname
    return info


FORMS = pytest.mark.parametrize(("make", "name"), [(tar_of, "a.tar.gz"), (zip_of, "a.zip")])


@FORMS
def test_members_come_out_as_they_went_in(tmp_path, make, name):
    files = {"folder/one": b"1", "folder/deep/er/two": b"22" * 100_000, "three": b""}
    extract(make(tmp_path / name, *files.items()), tmp_path / "out")
    assert contents(tmp_path / "out") == files


@FORMS
@pytest.mark.parametrize("path", ["../out", "a/../../out", "/out", "..", "a\\..\\..\\out", "C:/out", "C:\\out"])
def test_a_member_outside_the_folder_is_refused_before_anything_is_written(tmp_path, make, name, path):
    archive = make(tmp_path / name, ("good", b"1"), (path, b"evil"))
    with pytest.raises(DataError, match="must stay inside the folder") as caught:
        extract(archive, tmp_path / "out" / "folder")
    assert repr(path) in str(caught.value)
    assert str(archive) in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "member",
    [
        special(tarfile.SYMTYPE, "/etc"),
        special(tarfile.LNKTYPE, "good"),
        special(tarfile.FIFOTYPE),
        special(tarfile.CHRTYPE),
    ],
)
def test_links_and_devices_in_a_tar_are_refused(tmp_path, member):
    archive = tar_of(tmp_path / "a.tar.gz", ("good", b"1"), (member, b""), ("evil/passwd", b"2"))
    with pytest.raises(DataError, match="members must be files or folders, got 'evil'"):
        extract(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_links_in_a_zip_are_refused(tmp_path):
    link = zipfile.ZipInfo("evil")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    archive = zip_of(tmp_path / "a.zip", ("good", b"1"), (link, "/etc"))
    with pytest.raises(DataError, match="members must be files or folders, got 'evil'"):
        extract(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@FORMS
@pytest.mark.parametrize("keep", [0, 10, 0.5, 0.95])
def test_a_truncated_archive_is_refused(tmp_path, make, name, keep):
    archive = make(tmp_path / name, ("one", bytes(range(256)) * 100), ("two", b"2" * 10_000))
    content = archive.read_bytes()
    archive.write_bytes(content[: keep if isinstance(keep, int) else int(len(content) * keep)])
    with pytest.raises(DataError, match="must be a whole archive"):
        extract(archive, tmp_path / "out")
