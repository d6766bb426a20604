"""Every import under src/sfao, also those inside functions and those for type checkers only."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src" / "sfao"
#: Modules directly under src/sfao that are no part of the core.
BESIDE_THE_CORE = ("checks", "integrations")


def find_room(parts: Sequence[str]) -> str:
    """Return the room of a module of ours, given the parts of its name, as docs/make_architecture.py has it."""
    if len(parts) == 1:
        return "sfao"
    if parts[1] == "lab":
        return "lab" if len(parts) == 2 or parts[2] == "api" else f"lab.{parts[2]}"
    return parts[1] if parts[1] in BESIDE_THE_CORE else "core"


@dataclass(frozen=True)
class Import:
    """An import of a module, by a line of a file."""

    file: str
    line: int
    module: str

    @property
    def importer(self) -> str:
        """The room that the line is in; `__main__` is the command."""
        if self.file == "__main__.py":
            return "lab.cli"
        return find_room(f"sfao/{self.file}".removesuffix(".py").removesuffix("/__init__").split("/"))

    @property
    def imported(self) -> str:
        """The room of what is imported; `sfao` for the public names."""
        return find_room(self.module.split("."))

    @property
    def is_ours(self) -> bool:
        return self.module.partition(".")[0] == "sfao"

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


@cache
def all_imports(sources: Path = SOURCES) -> list[Import]:
    return [
        Import(str(file.relative_to(sources)), line, module)
        for file in sorted(sources.rglob("*.py"))
        for line, module in _modules(file, sources)
    ]


def _modules(file: Path, sources: Path) -> Iterator[tuple[int, str]]:
    places = [*sources.iterdir(), *(sources / "lab").glob("*")]
    names = (".".join(("sfao", *path.relative_to(sources).with_suffix("").parts)) for path in places)
    packages = {name for name in names if not name.endswith("__")}
    for node in ast.walk(ast.parse(file.read_text(), str(file))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, file, sources)
            for name in node.names:
                # `from sfao import gating` imports a package of ours, `from sfao import SFAO` a public name.
                whole = f"{base}.{name.name}"
                yield node.lineno, whole if whole in packages else base


def _absolute(node: ast.ImportFrom, file: Path, sources: Path) -> str:
    if not node.level:
        return node.module or ""
    parts = ("sfao", *file.relative_to(sources).parent.parts)
    return ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])
