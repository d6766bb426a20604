"""The lines of keys in a YAML file, for errors that name the line."""

from collections.abc import Iterator
from pathlib import Path

import yaml

Keys = tuple[str, ...]


def lines_of(file: Path) -> dict[Keys, int]:
    """Return {path of keys: line, counted from 1} for every key of nested mappings."""
    return {path: line for path, line, _ in _walk(file.read_text())}


def repeated_key(text: str) -> tuple[str, int] | None:
    """Return the first key that a mapping repeats, with its line: YAML forbids it, but the parser keeps the last."""
    return next(((".".join(path), line) for path, line, again in _walk(text) if again), None)


def _walk(text: str) -> Iterator[tuple[Keys, int, bool]]:
    """Yield (path, line, whether it is a repetition) of every key; the content of an alias comes once."""
    root = yaml.compose(text, yaml.SafeLoader)
    waiting: list[tuple[Keys, yaml.MappingNode]] = [((), root)] if isinstance(root, yaml.MappingNode) else []
    known = {id(root)}
    while waiting:
        path, node = waiting.pop(0)
        keys: set[str] = set()
        for key, value in node.value:
            own = (*path, str(key.value))
            yield own, key.start_mark.line + 1, own[-1] in keys
            keys.add(own[-1])
            if isinstance(value, yaml.MappingNode) and id(value) not in known:
                known.add(id(value))
                waiting.append((own, value))
