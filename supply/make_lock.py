"""supply/lock*.txt: the SHA-256 of every file that may be installed for a pin.

python -m supply.make_lock     ask the index that pip is configured with, over https, and write the files

Wheels of Python 3.11 and newer, and the source of a package that has no wheel. A build in the folder that
PIP_FIND_LINKS names, such as torch for the CPU, takes the place of those that the index has for Linux.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from types import MappingProxyType
from urllib.parse import unquote, urldefrag, urlsplit
from urllib.request import urlopen

from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

from supply.pins import LOCKS, normalise, read_pins

OLDEST = 11
HEAD = "# Made by `make lock` from {source}: every file of a pin, by its SHA-256. Not to be edited."


class _Links(HTMLParser):
    """The links of a page of an index, as {file: SHA-256}."""

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href") if tag == "a" else None
        if href:
            path, fragment = urldefrag(href)
            if fragment.startswith("sha256="):
                self.files[unquote(path.rpartition("/")[2])] = fragment.removeprefix("sha256=")


def find_index() -> str:
    """Return the address of the index that pip is configured with; one that is not https is refused."""
    told = os.environ.get("PIP_INDEX_URL")
    if told is None:
        asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
        told = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    if not told:
        from pip._internal.models.index import PyPI

        told = PyPI.simple_url
    if urlsplit(told).scheme != "https":
        raise ValueError(f"the index must be asked over https, got {told.split(':')[0]}")
    return told.rstrip("/")


def serves(name: str, version: str, file: str) -> str:
    """Return `wheel` or `source` for a file that may be installed for a pin, or nothing."""
    try:
        if file.endswith(".whl"):
            package, found, _, tags = parse_wheel_filename(file)
            kind = "wheel" if any(_is_recent(tag.interpreter, tag.abi) for tag in tags) else ""
        else:
            package, found = parse_sdist_filename(file)
            kind = "source"
    except (InvalidWheelFilename, InvalidSdistFilename):
        return ""
    same = normalise(package) == name and Version(found.public) == Version(version)
    return kind if same else ""


def _is_recent(interpreter: str, abi: str) -> bool:
    """Tell whether a wheel serves a Python of ours; free-threaded ones are another build."""
    if interpreter.startswith("py3"):
        return True
    minor = interpreter.removeprefix("cp3")
    return minor.isdigit() and not abi.endswith("t") and (abi == "abi3" or int(minor) >= OLDEST)


def choose(
    name: str, version: str, files: dict[str, str], local: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Return the hashes to accept for a pin: of its wheels, or of its source where there is no wheel.

    A build in the local folder takes the place of those for Linux: the two need other packages, and a lock is of one.
    """
    built = {file: digest for file, digest in local.items() if serves(name, version, file)}
    others = {file: digest for file, digest in files.items() if not (built and "linux" in file)}
    offered = {**others, **built}
    kinds = {file: serves(name, version, file) for file in offered}
    wanted = "wheel" if "wheel" in kinds.values() else "source"
    return sorted({offered[file] for file, kind in kinds.items() if kind == wanted})


def list_folder(folder: str) -> dict[str, str]:
    """Return {file: SHA-256} of the wheels in a folder."""
    return {file.name: _hash(file) for file in Path(folder).glob("*.whl")} if folder else {}


def _hash(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def read_index(index: str, name: str) -> dict[str, str]:
    """Return {file: SHA-256} of all files that the index has of a package."""
    page = _Links()
    with urlopen(f"{index}/{name}/", timeout=60) as answer:
        page.feed(answer.read().decode())
    return page.files


def write_lock(source: Path, target: Path, index: str, local: dict[str, str]) -> int:
    """Write the lock of a file of pins; return the number of hashes in it."""
    lines, count = [HEAD.format(source=source.name)], 0
    for name, version in sorted(read_pins(source).items()):
        hashes = choose(name, version, read_index(index, name), local)
        if not hashes:
            raise ValueError(f"{source.name}: {name}=={version} must be on the index with a SHA-256, but is not")
        lines.append(" \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{digest}" for digest in hashes)]))
        count += len(hashes)
    target.write_text("\n".join(lines) + "\n")
    return count


def main() -> None:
    try:
        index, local = find_index(), list_folder(os.environ.get("PIP_FIND_LINKS", ""))
        for source, target in LOCKS.items():
            print(f"{target.parent.name}/{target.name}: {write_lock(source, target, index, local)} hashes")
    except (ValueError, OSError) as error:
        sys.exit(f"make_lock: {error}")


if __name__ == "__main__":
    main()
