"""Every pin has hashes, every dependency a licence, and what is kept of them is of the pins there are."""

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest

from supply.audit import explain
from supply.licences import TABLE, find_licence, make_table, read_licence_text
from supply.make_lock import choose, find_index, serves
from supply.make_sbom import SBOM, make_sbom
from supply.pins import LOCKS, ROOT, normalise, read_hashes, read_pins

CONSTRAINTS = ROOT / "constraints.txt"
#: The pins are of one platform: elsewhere, other packages are needed.
on_pinned_platform = pytest.mark.skipif(
    sys.platform != "linux" or sys.version_info[:2] != (3, 11), reason="the kept files are of Linux and Python 3.11"
)


@pytest.mark.parametrize(("source", "lock"), LOCKS.items(), ids=lambda file: file.name)
def test_every_pin_has_hashes_and_nothing_else_has(source: Path, lock: Path) -> None:
    assert read_pins(lock) == read_pins(source)
    assert not [name for name, hashes in read_hashes(lock).items() if not hashes]


def test_a_package_has_one_version_wherever_it_is_pinned() -> None:
    pinned: dict[str, set[str]] = {}
    for source in LOCKS:
        for name, version in read_pins(source).items():
            pinned.setdefault(name, set()).add(version)
    assert {name: versions for name, versions in pinned.items() if len(versions) > 1} == {}


def test_what_is_installed_is_what_is_pinned() -> None:
    installed = {normalise(each.name): each.version.partition("+")[0] for each in distributions()}
    ours = {"sfao", "pip"}
    assert {name: version for name, version in installed.items() if name not in ours} == read_pins(CONSTRAINTS)


def test_the_build_backend_is_pinned_as_everything_else() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]
    assert build["requires"] == [f"hatchling=={read_pins(CONSTRAINTS)['hatchling']}"]


@on_pinned_platform
def test_licences_and_bill_of_materials_are_those_of_the_pins() -> None:
    """`make sbom` writes both, and validates the second; a package without a licence is an error there and here."""
    assert TABLE.read_text() == make_table()
    made = make_sbom()
    assert json.loads(SBOM.read_text()) == made
    references = {made["metadata"]["component"]["bom-ref"], *(each["bom-ref"] for each in made["components"])}
    assert {each["ref"] for each in made["dependencies"]} == references
    assert {name for each in made["dependencies"] for name in each["dependsOn"]} <= references
    required = {each["name"] for each in made["components"] if each["scope"] == "required"}
    assert {"torch", "numpy"} <= required
    assert required.isdisjoint({"pydantic", "pytest"})


def test_no_address_in_the_package_is_without_encryption() -> None:
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "supply").glob("*")]
    found = [
        f"{file.name}: {url}"
        for file in files
        if file.is_file()
        for url in re.findall(r"http://[^\s\"')]+", file.read_text())
    ]
    # The second is of the page that a run serves on this machine alone.
    allowed = ("http://www.w3.org/", "server.py: http://{HOST}:")
    assert [line for line in found if not any(part in line for part in allowed)] == []


def test_wheels_of_our_pythons_are_accepted_and_sources_only_where_there_is_none() -> None:
    assert serves("numpy", "2.4.6", "numpy-2.4.6-cp311-cp311-manylinux_2_28_x86_64.whl") == "wheel"
    assert serves("numpy", "2.4.6", "numpy-2.4.6-cp310-cp310-manylinux_2_28_x86_64.whl") == ""
    assert serves("numpy", "2.4.6", "numpy-2.4.5-cp311-cp311-manylinux_2_28_x86_64.whl") == ""
    assert serves("torch", "2.13.0", "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl") == "wheel"
    assert serves("ruff", "0.17.4", "ruff-0.17.4-py3-none-win_amd64.whl") == "wheel"
    assert choose("a", "1", {"a-1.tar.gz": "s", "a-1-py3-none-any.whl": "w", "b-1-py3-none-any.whl": "o"}) == ["w"]
    assert choose("a", "1", {"a-1.tar.gz": "s", "a-2.tar.gz": "o"}) == ["s"]
    index = {"a-1-cp311-cp311-manylinux_2_28_x86_64.whl": "cuda", "a-1-cp311-cp311-macosx_11_0_arm64.whl": "mac"}
    local = {"a-1+cpu-cp311-cp311-linux_x86_64.whl": "cpu", "b-1-py3-none-any.whl": "o"}
    assert choose("a", "1", index) == ["cuda", "mac"]
    assert choose("a", "1", index, local) == ["cpu", "mac"]


def test_an_index_without_encryption_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "ftp://somewhere/simple")
    with pytest.raises(ValueError, match="must be asked over https, got ftp"):
        find_index()


@pytest.mark.parametrize(
    ("line", "rule"), [("numpy>=2", "must be name==version"), ("a==1\nA==2", "must pin each package once")]
)
def test_a_line_that_pins_nothing_is_named(tmp_path: Path, line: str, rule: str) -> None:
    file = tmp_path / "pins.txt"
    file.write_text(line)
    with pytest.raises(ValueError, match=rule):
        read_pins(file)


def test_a_licence_that_nothing_tells_is_unknown() -> None:
    assert read_licence_text("All rights reserved.") == ""
    assert read_licence_text("Permission is hereby granted, free of charge, to any person") == "MIT"
    assert {find_licence(each) for each in distributions()} != {""}


def test_an_audit_that_could_not_ask_says_so_in_a_line(tmp_path: Path) -> None:
    said = explain(tmp_path / "lock.txt", "WARNING:x\nERROR:pip_audit._cli:alembic: not found\nTraceback")
    assert said.endswith("lock.txt, the database of vulnerabilities could not be asked: alembic: not found")
    assert "\n" not in said


@pytest.mark.soak
def test_pip_accepts_the_lock_and_every_file_that_it_names() -> None:
    """Every file is fetched and hashed; nothing is installed."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--require-hashes"]
    done = subprocess.run([*command, "--requirement", str(LOCKS[CONSTRAINTS])], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
