"""The pins of this project: which files hold them, and where each one's hashes stand."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: {file of pins: file of their hashes}; constraints.txt has all that `make test` installs.
LOCKS = {
    ROOT / "constraints.txt": ROOT / "supply" / "lock.txt",
    ROOT / "constraints-company.txt": ROOT / "supply" / "lock-company.txt",
    ROOT / "supply" / "tools.txt": ROOT / "supply" / "lock-tools.txt",
}


def normalise(name: str) -> str:
    """Return the name of a package as indexes write it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_pins(file: Path) -> dict[str, str]:
    """Return {package: version} of a file of `name==version` lines, or raise a ValueError that names the line."""
    pins: dict[str, str] = {}
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        text = line.split("#")[0].split(" \\")[0].strip()
        if not text or text.startswith("--hash="):
            continue
        name, sign, version = text.partition("==")
        if not sign or not version:
            raise ValueError(f"{file.name}:{number} must be name==version, got {line!r}")
        if normalise(name) in pins:
            raise ValueError(f"{file.name}:{number} must pin each package once, got {name} again")
        pins[normalise(name)] = version
    return pins


def read_hashes(file: Path) -> dict[str, list[str]]:
    """Return {package: its SHA-256 hashes} of a lock file."""
    hashes: dict[str, list[str]] = {}
    for line in file.read_text().splitlines():
        if found := re.fullmatch(r"    --hash=sha256:([0-9a-f]{64})(?: \\)?", line):
            hashes[next(reversed(hashes))].append(found[1])
        elif found := re.match(r"([A-Za-z0-9._-]+)==", line):
            hashes[normalise(found[1])] = []
    return hashes
