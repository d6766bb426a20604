"""Where in a YAML file a value stands, for errors that name the line."""

from collections.abc import Iterator
from pathlib import Path

import yaml

Keys = tuple[str, ...]


def lines_of(file: Path) -> dict[Keys, int]:
    """{path of keys: line, counted from 1}, for every key of nested mappings."""
    return {path: line for path, line, _ in _walk(file.read_text())}


def repeated_key(text: str) -> tuple[str, int] | None:
    """The first key that a mapping has twice, with its line: YAML forbids it, and the parser takes the last."""
    return next(((".".join(path), line) for path, line, again in _walk(text) if again), None)


def _walk(text: str) -> Iterator[tuple[Keys, int, bool]]:
    """(path, line, whether it was there before) of every key; what an alias stands for is told where it is written."""
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
