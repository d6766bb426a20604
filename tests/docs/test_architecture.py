"""The rooms of the house: nothing is imported against the directions that docs/architecture.md shows."""

import importlib.util
import subprocess
import sys
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.docs.imports import SOURCES, Import, all_imports

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "architecture.md").read_text()

#: The modules of the optimizer that need more than torch and numpy: a twin that only tests import.
BESIDE_THE_OPTIMIZER = {"optim/reference.py": {"scipy"}}


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
    there = {path.stem for path in SOURCES.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    # The folder of a package that is described may still be to come, but never the other way round.
    assert there - {"__init__", "__main__"} <= ROOMS.keys() - {"sfao"}
    for name in ROOMS:
        assert f"| `{name}` |" in PAGE, name


def test_the_optimizer_needs_torch_and_numpy_and_nothing_else():
    usable = {"sfao", "torch", "numpy", "triton"} | set(sys.stdlib_module_names)
    core = {"sfao", "checks", "gating", "optim"}
    for each in all_imports():
        top = each.module.partition(".")[0]
        if each.importer in core:
            assert top in usable | BESIDE_THE_OPTIMIZER.get(each.file, set()), each


@pytest.mark.parametrize("name", ["checks", "tables", "metrics"])
def test_rooms_that_need_no_torch(name):
    used = {each.module.partition(".")[0] for each in all_imports() if each.importer == name}
    assert used.isdisjoint({"torch", "numpy", "triton"})


def test_the_picture_is_of_these_rooms():
    command = [sys.executable, DOCS / "make_architecture.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_import_against_the_directions_is_found_wherever_it_stands(tmp_path):
    for name in ("gating", "optim", "cli"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / "optim" / "good.py").write_text("from sfao.gating import x\nfrom sfao import gating\nimport torch\n")
    (tmp_path / "gating" / "late.py").write_text("def f():\n    from sfao.optim.good import x\n")
    (tmp_path / "gating" / "plain.py").write_text("import sfao.cli.app\nfrom sfao import cli\nfrom ..optim import y\n")
    assert list(map(str, against(all_imports(tmp_path)))) == [
        "gating/late.py:2 imports sfao.optim.good",
        "gating/plain.py:1 imports sfao.cli.app",
        "gating/plain.py:2 imports sfao.cli",
        "gating/plain.py:3 imports sfao.optim",
    ]
