"""The rooms of the house: nothing is imported against the directions that docs/architecture.md shows."""

import importlib.util
import re
import subprocess
import sys
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.docs.imports import SOURCES, Import, all_imports

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "architecture.md").read_text()


def load_script():
    spec = importlib.util.spec_from_file_location("make_architecture", DOCS / "make_architecture.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


SCRIPT = load_script()
ROOMS = SCRIPT.ROOMS


def against(imports: list[Import]) -> list[Import]:
    """The imports that the arrows do not allow."""
    return [
        each
        for each in imports
        if each.is_ours
        and each.imported not in {each.importer, *SCRIPT.reachable(each.importer)}
        # The version, which anything may ask for, needs nothing.
        and each.module != "sfao"
    ]


def test_no_import_goes_against_the_directions():
    found = {(each.file, each.imported): str(each) for each in against(all_imports())}
    assert list(found.values()) == []


def test_no_two_packages_import_each_other_directly_or_around():
    graph = defaultdict(set)
    for each in all_imports():
        if each.is_ours and each.imported not in (each.importer, "sfao"):
            graph[each.importer].add(each.imported)
    list(TopologicalSorter(graph).static_order())  # a CycleError names the packages


def test_the_arrows_make_no_circle_and_all_point_down():
    list(TopologicalSorter({name: room.arrows for name, room in ROOMS.items()}).static_order())
    for name, room in ROOMS.items():
        for arrow in room.arrows:
            assert ROOMS[arrow].place[1] > room.place[1], f"{name} -> {arrow}"


def test_every_package_has_a_room_and_a_line_on_the_page():
    assert {each.importer for each in all_imports()} <= ROOMS.keys()
    for name in ROOMS:
        assert f"| `{name}` |" in PAGE, name


def test_every_file_of_the_core_has_a_line_on_the_page():
    files = {path.relative_to(SOURCES) for path in SOURCES.rglob("*.py")}
    core = {str(file) for file in files if file.parts[0] != "lab"}
    listed = re.findall(r"^\| `([\w/]+\.py)` \|", PAGE, re.MULTILINE)
    assert sorted(listed) == sorted(core)


def test_the_core_needs_torch_and_numpy_and_never_the_laboratory():
    usable = {"sfao", "torch", "numpy"} | set(sys.stdlib_module_names)
    found = [each for each in all_imports() if each.importer in ("sfao", "checks", "core")]
    assert found
    for each in found:
        top = each.module.partition(".")[0]
        assert top in usable, each
        assert not each.module.startswith("sfao.lab"), each


@pytest.mark.parametrize("name", ["checks", "lab.metrics"])
def test_rooms_that_need_no_torch(name):
    used = {each.module.partition(".")[0] for each in all_imports() if each.importer == name}
    assert used.isdisjoint({"torch", "numpy"})


def test_the_picture_is_of_these_rooms():
    command = [sys.executable, DOCS / "make_architecture.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
