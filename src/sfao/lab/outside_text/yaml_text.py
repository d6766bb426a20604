"""The one reader of YAML from outside: files of settings, and values on the command line."""

from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any

import yaml

from sfao.lab.outside_text.files import read_text
from sfao.lab.outside_text.limits import (
    MOST_YAML,
    OutsideTextError,
    check_count,
    check_depth,
    check_length,
    check_text,
    check_whole,
)
from sfao.lab.outside_text.plain import quote, shorten

Keys = tuple[str, ...]

_TAG = "tag:yaml.org,2002:"
#: What settings are made of. There are no dates: 2020-01-01 is text.
_KINDS = ("null", "bool", "int", "float", "str", "seq", "map")


class _Loader(yaml.SafeLoader):
    """A loader that counts while it reads, so that nothing large is ever made of a small text."""

    yaml_implicit_resolvers = {  # noqa: RUF012, as in PyYAML
        letter: [(tag, form) for tag, form in known if tag.removeprefix(_TAG) not in ("timestamp", "value")]
        for letter, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    yaml_constructors = {  # noqa: RUF012
        tag: make
        for tag, make in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag.removeprefix(_TAG) in _KINDS
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._open = 0
        #: {node: how many values it stands for, and how deep they lie, with all that aliases repeat}
        self._sizes: dict[int, tuple[int, int]] = {}

    def fetch_flow_collection_start(self, kind: Any) -> None:
        """Look at brackets when they open: PyYAML takes them all in, in a time that grows with their square."""
        super().fetch_flow_collection_start(kind)
        check_depth(self.flow_level, self.line + 1)

    def compose_node(self, parent: Any, index: Any) -> Any:
        line: int = self.peek_event().start_mark.line + 1  # type: ignore[no-untyped-call]
        self._open += 1
        check_depth(self._open, line)
        check_count(len(self._sizes), line)
        is_alias = self.check_event(yaml.AliasEvent)
        node = super().compose_node(parent, index)
        self._open -= 1
        if not is_alias:
            self._sizes[id(node)] = self._measure(node, line)
        elif id(node) not in self._sizes:
            raise OutsideTextError("must not hold an alias of what it stands in, got one", line)
        return node

    def _measure(self, node: Any, line: int) -> tuple[int, int]:
        if isinstance(node, yaml.ScalarNode):
            return 1, 0
        inside = [one for pair in node.value for one in pair] if isinstance(node, yaml.MappingNode) else node.value
        values = 1 + sum(self._sizes[id(one)][0] for one in inside)
        depth = 1 + max((self._sizes[id(one)][1] for one in inside), default=0)
        check_depth(depth, line)
        check_count(values, line)
        return values, depth


def _construct_whole(loader: _Loader, node: yaml.ScalarNode) -> int:
    line = node.start_mark.line + 1
    try:
        return check_whole(loader.construct_yaml_int(node), line)
    except OutsideTextError:
        raise
    except ValueError:
        raise OutsideTextError(f"must hold whole numbers below 2**64 in size, got {quote(node.value)}", line) from None


def _construct_float(loader: _Loader, node: yaml.ScalarNode) -> float:
    try:
        number: float = loader.construct_yaml_float(node)
    except (ValueError, OverflowError):
        number = float("nan")
    if not isfinite(number):
        raise OutsideTextError(f"must hold finite numbers, got {quote(node.value)}", node.start_mark.line + 1)
    return number


def _construct_text(loader: _Loader, node: yaml.ScalarNode) -> str:
    return check_text(str(loader.construct_scalar(node)), node.start_mark.line + 1)


_Loader.add_constructor(f"{_TAG}int", _construct_whole)
_Loader.add_constructor(f"{_TAG}float", _construct_float)
_Loader.add_constructor(f"{_TAG}str", _construct_text)


def read_yaml_file(file: Path) -> Any:
    """Return the value in a file; raise an OutsideTextError where it breaks a rule or a limit."""
    return parse_yaml(read_text(file, MOST_YAML))


def parse_yaml(text: str) -> Any:
    """Return the value in a text, by the same rules."""
    loader, root = _compose(text)
    if root is None:
        return None
    repeated = next(((path, line) for path, line, again in _walk(root) if again), None)
    if repeated is not None:
        path, line = repeated
        raise OutsideTextError(f"`{shorten('.'.join(path), 120)}` must be there once, got it again", line)
    try:
        return loader.construct_document(root)
    except yaml.YAMLError as error:
        raise _explain(error) from None


def find_lines(file: Path) -> dict[Keys, int]:
    """Return {path of keys: line, counted from 1} for every key of nested mappings in a file."""
    _, root = _compose(read_text(file, MOST_YAML))
    return {} if root is None else {path: line for path, line, _ in _walk(root)}


def _compose(text: str) -> tuple[_Loader, yaml.Node | None]:
    check_length(len(text), MOST_YAML)
    try:
        loader = _Loader(text)
        return loader, loader.get_single_node()
    except yaml.YAMLError as error:
        raise _explain(error) from None
    except OutsideTextError:
        raise
    except ValueError as error:  # of an escape that is no character
        raise OutsideTextError(f"must be YAML: {error}") from None


def _explain(error: yaml.YAMLError) -> OutsideTextError:
    mark = getattr(error, "problem_mark", None)
    said = getattr(error, "problem", None) or " ".join(str(error).split())
    return OutsideTextError(f"must be YAML: {shorten(said, 200)}", None if mark is None else mark.line + 1)


def _walk(root: yaml.Node) -> Iterator[tuple[Keys, int, bool]]:
    """Yield (path, line, whether it is a repetition) of every key; the content of an alias comes once."""
    waiting: list[tuple[Keys, yaml.Node]] = [((), root)]
    known = {id(root)}
    while waiting:
        path, node = waiting.pop(0)
        if not isinstance(node, yaml.MappingNode):
            continue
        keys: set[str] = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise OutsideTextError("must have names as keys, got a list or a mapping", line)
            own = (*path, str(key.value))
            yield own, line, own[-1] in keys
            keys.add(own[-1])
            if id(value) not in known:
                known.add(id(value))
                waiting.append((own, value))
