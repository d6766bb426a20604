"""Every import under src/sfao, also those inside functions and those for type checkers only."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src" / "sfao"


@dataclass(frozen=True)
class Import:
    """An import of a module, by a line of a file."""

    file: str
    line: int
    module: str

    @property
    def importer(self) -> str:
        """The package, or the module beside the packages, that the line is in; `__main__` is the command."""
        top = self.file.partition("/")[0].removesuffix(".py")
        return {"__init__": "sfao", "__main__": "cli"}.get(top, top)

    @property
    def imported(self) -> str:
        """The package of ours that is imported; `sfao` for the public names."""
        return self.module.split(".")[1] if "." in self.module else "sfao"

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
    packages = {"sfao", *(f"sfao.{path.stem}" for path in sources.iterdir() if path.stem != "__init__")}
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
