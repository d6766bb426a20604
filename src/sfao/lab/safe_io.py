"""Files from outside: JSON and YAML with limits on size and depth, and files opened without following links."""

import errno
import json
import os
import re
import stat
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf, isfinite
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from sfao.lab.console import quote, shorten

#: In bytes: a YAML text or a setting (complete settings take about 1,000), a JSON file, one line of a JSON-lines file.
MAX_YAML, MAX_JSON, MAX_LINE = 2**18, 2**26, 2**24
MAX_DEPTH = 50
#: The values of a YAML text. An alias counts as all values that it repeats.
MAX_VALUES = 5_000
#: JSON that may hold values to refuse: integers of 19 digits, non-finite numbers, surrogates.
_SUSPICIOUS = re.compile(r"[0-9]{19}|NaN|Infinity|[eE]\+?[0-9]{3}|\\u[dD][89a-fA-F]")
#: Not on every system: where they are missing, links are followed and pipes block.
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

Keys = tuple[str, ...]


class InputError(ValueError):
    """A text that breaks a rule: the rule, the value found and, if known, the line."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.line = reason, line

    def at(self, file: object) -> str:
        """Return the message after the name of the file and, if known, the line."""
        return f"{file}: {self.reason}" if self.line is None else f"{file}:{self.line}: {self.reason}"


def open_file(path: Path, flags: int, mode: str = "rb") -> BinaryIO:
    """Open a plain file without following a link; `flags` are those of `os.open`."""
    try:
        descriptor = os.open(path, flags | _NO_FOLLOW, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "must be a file of its own, not a link", str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "must be a plain file", str(path))
    return os.fdopen(descriptor, mode)  # type: ignore[return-value]


@contextmanager
def name_file_in_errors(path: Path) -> Iterator[None]:
    """Add the file to an OSError that lacks it: opening a file names it, writing to a full disk doesn't."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def read_file(path: Path, limit: int | None = None) -> bytes:
    """Return the content of a plain file that is not a link: at most `limit + 1` bytes, for the caller to refuse."""
    with name_file_in_errors(path), open_file(path, os.O_RDONLY) as file:
        return file.read(-1 if limit is None else limit + 1)


def read_text(path: Path, limit: int) -> str:
    """Return the text of a file that the user named (a link or a pipe too)."""
    with open(path, "rb") as file:
        data = file.read(limit + 1)  # a device has no end
    check_length(len(data), limit)
    return decode(data)


def iter_lines(path: Path, limit: int) -> Iterator[bytes]:
    """Yield the lines of a file without their ends; each has at most `limit` bytes."""
    with open(path, "rb") as file:
        while line := file.readline(limit + 1):
            check_length(len(line), limit)
            yield line.rstrip(b"\r\n")


def check_length(length: int, limit: int) -> None:
    if length > limit:
        raise InputError(f"must have at most {limit:,} bytes, got more")


def decode(data: bytes) -> str:
    """Return UTF-8 as text, without a byte order mark."""
    if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise InputError("must be text in UTF-8, got UTF-16")
    try:
        text = data.removeprefix(BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"must be text in UTF-8, got the byte 0x{data[error.start]:02x}", line) from None
    if "\0" in text:
        raise InputError("must be text, got a NUL byte", text.count("\n", 0, text.index("\0")) + 1)
    return text


def read_json(path: Path, *, finite: bool = True) -> Any:
    """Return the value in a JSON file; see `parse_json`."""
    return parse_json(read_text(path, MAX_JSON), finite=finite)


def parse_json(text: str | bytes, *, finite: bool = True) -> Any:
    """Return the value in a JSON text; `finite=False` allows NaN and infinities."""
    check_length(len(text), MAX_JSON)
    text = decode(text) if isinstance(text, bytes) else text
    try:
        value = json.loads(text)
    except RecursionError:
        raise InputError(f"must be at most {MAX_DEPTH} levels deep, got more") from None
    except ValueError as error:  # a syntax error, or a number with more digits than Python reads
        raise InputError(f"must be JSON: {shorten(str(error), 200)}") from None
    if text.count("[") + text.count("{") > MAX_DEPTH or _SUSPICIOUS.search(text):
        _check_value(value, inf, finite)
    return value


def read_yaml_file(file: Path) -> Any:
    """Return the value in a YAML file; see `parse_yaml`."""
    return parse_yaml(read_text(file, MAX_YAML))


def parse_yaml(text: str) -> Any:
    """Return the value in a YAML text: numbers, text, lists and mappings with each key once."""
    loader, root = _compose(text)
    if root is None:
        return None
    _key_lines(root)
    try:
        value = loader.construct_document(root)
    except yaml.YAMLError as error:
        raise _explain(error) from None
    except (ValueError, OverflowError, AttributeError) as error:  # too many digits, a date that doesn't exist
        raise InputError(f"must be YAML: {shorten(str(error), 200)}") from None
    _check_value(value, MAX_VALUES, finite=True)
    return value


def find_lines(file: Path) -> dict[Keys, int]:
    """Return {path of keys: line, counted from 1} for every key of nested mappings in a YAML file."""
    _, root = _compose(read_text(file, MAX_YAML))
    return {} if root is None else _key_lines(root)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with limits that hold while it reads."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._nodes = 0

    def fetch_flow_collection_start(self, kind: Any) -> None:
        """Check the depth when a bracket opens: PyYAML's time grows with the square of open brackets."""
        super().fetch_flow_collection_start(kind)
        _check_depth(self.flow_level, self.line + 1)

    def compose_node(self, parent: Any, index: Any) -> Any:
        line: int = self.peek_event().start_mark.line + 1  # type: ignore[no-untyped-call]
        self._nodes += 1
        self._depth += 1
        _check_depth(self._depth, line)
        _check_count(self._nodes, MAX_VALUES, line)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def flatten_mapping(self, node: Any) -> None:
        super().flatten_mapping(node)
        _check_count(len(node.value), MAX_VALUES, node.start_mark.line + 1)


def _compose(text: str) -> tuple[_Loader, yaml.Node | None]:
    check_length(len(text), MAX_YAML)
    try:
        loader = _Loader(text)
        return loader, loader.get_single_node()
    except yaml.YAMLError as error:
        raise _explain(error) from None
    except InputError:
        raise
    except ValueError as error:  # an escape that isn't a character
        raise InputError(f"must be YAML: {error}") from None


def _explain(error: yaml.YAMLError) -> InputError:
    mark = getattr(error, "problem_mark", None)
    reason = getattr(error, "problem", None) or " ".join(str(error).split())
    return InputError(f"must be YAML: {shorten(reason, 200)}", None if mark is None else mark.line + 1)


def _key_lines(root: yaml.Node) -> dict[Keys, int]:
    """Return {path: line} of the keys of nested mappings; an alias is followed once."""
    waiting: list[tuple[Keys, yaml.Node]] = [((), root)]
    known, lines = {id(root)}, {}
    while waiting:
        path, node = waiting.pop(0)
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise InputError("must have names as keys, got a list or a mapping", line)
            own = (*path, str(key.value))
            if own in lines:
                raise InputError(f"`{shorten('.'.join(own), 120)}` must be there once, got it again", line)
            lines[own] = line
            if id(value) not in known:
                known.add(id(value))
                waiting.append((own, value))
    return lines


def _check_value(value: Any, max_values: float, finite: bool) -> None:
    """Check the kind, depth and count of values, the size of integers and, if asked, that floats are finite."""
    waiting, count = [(value, 1)], 0
    while waiting:
        item, depth = waiting.pop()
        count += 1
        _check_count(count, max_values)
        if isinstance(item, dict | list):
            _check_depth(depth)
            inside = [*item, *item.values()] if isinstance(item, dict) else item
            waiting += [(each, depth + 1) for each in inside]
        elif isinstance(item, str):
            if not item.isascii() and any("\ud800" <= letter <= "\udfff" for letter in item):
                raise InputError(f"must hold whole characters, got {quote(item)}")
        elif isinstance(item, int):
            if abs(item) >= 2**64:
                raise InputError(f"must hold integers below 2**64 in size, got {quote(item)}")
        elif isinstance(item, float):
            if finite and not isfinite(item):
                raise InputError(f"must hold finite numbers, got {item}")
        elif item is not None:
            raise InputError(f"must hold numbers, text, lists and mappings, got {quote(item)}: quote it")


def _check_depth(depth: int, line: int | None = None) -> None:
    if depth > MAX_DEPTH:
        raise InputError(f"must be at most {MAX_DEPTH} levels deep, got more", line)


def _check_count(count: int, limit: float, line: int | None = None) -> None:
    if count > limit:
        raise InputError(f"must hold at most {limit:,} values, aliases included, got more", line)
