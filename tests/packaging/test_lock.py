"""requirements.lock has every package of the laboratory in the pinned version, with hashes."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements.lock").read_text()
LOCKED = {canonicalize_name(name): version for name, version in re.findall(r"^([\w.-]+)==(\S+)", LOCK, re.MULTILINE)}


def test_the_lock_holds_all_that_the_laboratory_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["lab"]]
    assert {canonicalize_name(Requirement(text).name) for text in asked} <= LOCKED.keys()


def test_the_lock_has_the_pinned_versions():
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    pinned = {canonicalize_name(name): version for name, version in pins.items()}
    assert {name: version for name, version in LOCKED.items() if pinned.get(name, version) != version} == {}


def test_every_locked_package_has_a_hash():
    entries = re.split(r"^(?=[\w.-]+==)", LOCK, flags=re.MULTILINE)[1:]
    assert entries
    assert [entry.partition("\n")[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_the_build_backend_is_the_pinned_one():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]
    version = re.search(r"^hatchling==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert version
    assert build["requires"] == [f"hatchling=={version[1]}"]


def test_no_address_in_the_package_is_without_encryption():
    files = (ROOT / "src").rglob("*.py")
    urls = [url for file in files for url in re.findall(r"http://[^\s\"')]+", file.read_text())]
    # XML namespaces, and the page that a run serves on this machine alone.
    assert [url for url in urls if not url.startswith(("http://www.w3.org/", "http://{HOST}:"))] == []
