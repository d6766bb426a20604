"""Files from outside: JSON and YAML with limits on size and depth, and files opened without following links."""

import errno
import json
import os
import re
import stat
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite
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
_SUSPICIOUS = re.compile(r"[0-9]{19}|NaN|Infinity|[eE]\+?[0-9]{3}|[0-9]{300}|\\u[dD][89a-fA-F]")
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
    _check_depth(text)
    try:
        value = json.loads(text)
    except ValueError as error:  # a syntax error, or a number with more digits than Python reads
        raise InputError(f"must be JSON: {shorten(str(error), 200)}") from None
    if _SUSPICIOUS.search(text):
        _check_value(value, finite)
    return value


def read_yaml_file(file: Path) -> Any:
    """Return the value in a YAML file; see `parse_yaml`."""
    return parse_yaml(read_text(file, MAX_YAML))


def parse_yaml(text: str) -> Any:
    """Return the value in a YAML text: numbers, text, lists and mappings with each key once."""
    return _load_yaml(text)[0]


def find_lines(file: Path) -> dict[Keys, int]:
    """Return {path of keys: line, counted from 1} for every key of nested mappings in a YAML file."""
    return _load_yaml(read_text(file, MAX_YAML))[1]


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which counts values: with aliases, a short text can stand for a huge or endless one."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._count = 0
        #: {id of a complete node: its number of values}
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        line, before = event.start_mark.line + 1, self._count
        self._count += 1
        node = super().compose_node(parent, index)
        if isinstance(event, yaml.AliasEvent):
            if id(node) not in self._sizes:
                raise InputError(f"must not have *{event.anchor} inside of &{event.anchor}", line)
            self._count += self._sizes[id(node)]
        else:
            self._sizes[id(node)] = self._count - before
        if self._count > MAX_VALUES:
            raise InputError(f"must hold at most {MAX_VALUES:,} values, aliases included, got more", line)
        return node


def _load_yaml(text: str) -> tuple[Any, dict[Keys, int]]:
    """Return the value, and the lines of its keys."""
    check_length(len(text), MAX_YAML)
    _check_depth(text)
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        lines = _find_lines(root)
        value = None if root is None else loader.construct_document(root)
    except RecursionError:
        raise InputError(f"must be at most {MAX_DEPTH} levels deep, got more") from None
    except InputError:
        raise
    except yaml.YAMLError as error:
        raise _explain(error) from None
    except (ValueError, OverflowError, AttributeError) as error:  # too many digits, a date that doesn't exist
        raise InputError(f"must be YAML: {shorten(str(error), 200)}") from None
    _check_value(value, finite=True)
    return value, lines


def _find_lines(root: Any) -> dict[Keys, int]:
    lines: dict[Keys, int] = {}
    waiting: list[tuple[Keys, Any]] = [((), root)]
    for path, node in waiting:
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise InputError("must have names as keys, got a list or a mapping", line)
            own = (*path, str(key.value))
            if own in lines:
                raise InputError(f"`{shorten('.'.join(own), 120)}` must be there once, got it again", line)
            lines[own] = line
            waiting.append((own, value))
    return lines


def _explain(error: yaml.YAMLError) -> InputError:
    mark = getattr(error, "problem_mark", None)
    reason = getattr(error, "problem", None) or " ".join(str(error).split())
    return InputError(f"must be YAML: {shorten(reason, 200)}", None if mark is None else mark.line + 1)


def _check_depth(text: str) -> None:
    """Refuse many open brackets before a parser sees them: the time of PyYAML grows with their square."""
    if text.count("[") + text.count("{") > MAX_DEPTH:
        depth = 0
        for found in re.finditer(r"[][{}]", text):
            depth = depth + 1 if found[0] in "[{" else max(depth - 1, 0)
            if depth > MAX_DEPTH:
                line = text.count("\n", 0, found.start()) + 1
                raise InputError(f"must be at most {MAX_DEPTH} levels deep, got more", line)


def _check_value(value: Any, finite: bool) -> None:
    """Check the type of every value, the size of integers and, if asked, that floats are finite."""
    waiting = [value]
    for item in waiting:
        if isinstance(item, dict | list):
            waiting += [*item, *item.values()] if isinstance(item, dict) else item
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
