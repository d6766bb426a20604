"""Files from outside are read in one module, and everything printed goes through one console."""

import ast
import re
from pathlib import Path

import pytest

from tests.docs.imports import SOURCES

READERS = "lab/safe_io.py"
TERMINAL = ("lab/console.py", "lab/cli/terminal.py")
#: Functions that read what others wrote, by module.
READING = {
    "yaml": {"load", "safe_load", "full_load", "unsafe_load", "load_all", "safe_load_all", "compose", "parse", "scan"},
    "json": {"load", "loads"},
    "tomllib": {"load", "loads"},
    "ast": {"literal_eval"},
    "builtins": {"eval", "exec"},
}
PRINTING = {
    "rich.console": {"Console"},
    "rich.markup": {"render", "escape"},
    "rich.progress": {"TextColumn", "track"},
    "rich.status": {"Status"},
    "rich": {"print", "get_console", "inspect"},
    "typer": {"echo", "secho", "style"},
    "click": {"echo", "secho", "style"},
    "builtins": {"print"},
}
#: The command without its extra has no console yet, and says nothing from outside.
PRINTING_ALLOWED = {"lab/cli/main.py": "print"}


def find_uses(path: Path, forbidden: dict[str, set[str]]) -> list[str]:
    """Return the forbidden names that a file imports, or calls by their module."""
    text = path.read_text()
    if not re.search(rf"\b({'|'.join(word for words in forbidden.values() for word in words)}|from_markup)\b", text):
        return []
    tree = ast.parse(text)
    modules: dict[str, str] = {}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {(alias.asname or alias.name): alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found += [alias.name for alias in node.names if alias.name in forbidden.get(node.module or "", ())]
            modules |= {(alias.asname or alias.name): f"{node.module}.{alias.name}" for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if node.attr in ("from_markup", "from_ansi") or node.attr in forbidden.get(modules.get(owner, ""), ()):
                found.append(f"{owner}.{node.attr}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found += [node.func.id] if node.func.id in forbidden["builtins"] else []
    return found


def sources() -> list[tuple[str, Path]]:
    return [(path.relative_to(SOURCES).as_posix(), path) for path in sorted(SOURCES.rglob("*.py"))]


def test_yaml_and_json_from_outside_are_read_in_one_place():
    found = {name: find_uses(path, READING) for name, path in sources() if name != READERS}
    assert {name: uses for name, uses in found.items() if uses} == {}


def test_nothing_else_prints_on_a_terminal():
    found = {name: find_uses(path, PRINTING) for name, path in sources() if name not in TERMINAL}
    assert {name: uses for name, uses in found.items() if uses and uses != [PRINTING_ALLOWED.get(name)]} == {}


@pytest.mark.parametrize(
    ("text", "forbidden", "found"),
    [
        ("import yaml\nyaml.safe_load('')", READING, ["yaml.safe_load"]),
        ("def f():\n    import json as j\n    return j.loads('')", READING, ["j.loads"]),
        ("from json import loads", READING, ["loads"]),
        ("import yaml\nyaml.safe_dump({})", READING, []),
        ("from rich.console import Console", PRINTING, ["Console"]),
        ("from rich import console\nconsole.Console()", PRINTING, ["console.Console"]),
        ("from rich.text import Text\nText.from_markup('')", PRINTING, ["Text.from_markup"]),
        ("print('x')", PRINTING, ["print"]),
        ("screen.print('x')", PRINTING, []),
        ("import typer\ntyper.echo('x')", PRINTING, ["typer.echo"]),
    ],
)
def test_the_walk_finds_them(text, forbidden, found, tmp_path):
    (tmp_path / "x.py").write_text(text)
    assert find_uses(tmp_path / "x.py", forbidden) == found
