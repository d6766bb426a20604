"""Where in a YAML file a value stands, for errors that name the line."""

from pathlib import Path

import yaml


def lines_of(file: Path) -> dict[tuple[str, ...], int]:
    """{path of keys: line, counted from 1}, for every key of nested mappings."""
    root = yaml.compose(file.read_text())
    return dict(_walk(root, ())) if isinstance(root, yaml.MappingNode) else {}


def _walk(node: yaml.MappingNode, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], int]]:
    found = []
    for key, value in node.value:
        own = (*path, str(key.value))
        found.append((own, key.start_mark.line + 1))
        if isinstance(value, yaml.MappingNode):
            found += _walk(value, own)
    return found
