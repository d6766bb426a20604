"""The end of a file that grows: each whole line once, and a sign where what was read before is gone."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sfao.lab.safe_io import MAX_LINE, check_length, open_file

#: Bytes that are read at a time.
MOST_AT_ONCE = MAX_LINE


@dataclass(frozen=True)
class NewLines:
    """Lines of a file that were not read before; `anew` says that they replace all that was."""

    lines: list[bytes]
    anew: bool = False


def thin_out(lines: list[bytes], most: int) -> list[bytes]:
    """Return lines of about so many bytes in all, evenly spaced, the last among them."""
    size = sum(map(len, lines))
    if size <= most:
        return lines
    count = max(1, len(lines) * most // size)
    return [lines[(number + 1) * len(lines) // count - 1] for number in range(count)]


class Tail:
    """The place in a file up to which it was read.

    A rollback cuts steps.jsonl and writes other lines: the last line that was read is then no longer where it was.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._place, self._last = path, 0, b""

    def read(self) -> NewLines:
        """Return the next whole lines; raise an InputError for one that is longer than what is read at once."""
        try:
            file = open_file(self._path, os.O_RDONLY)
        except FileNotFoundError:
            anew, self._place, self._last = self._place > 0, 0, b""
            return NewLines([], anew)
        with file:
            anew = not self._is_still_there(file)
            if anew:
                self._place, self._last = 0, b""
            file.seek(self._place)
            data = file.read(MOST_AT_ONCE + 1)
        lines = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
        if lines:
            self._place, self._last = self._place + sum(map(len, lines)), lines[-1]
        else:
            check_length(len(data), MOST_AT_ONCE)
        return NewLines(lines, anew)

    def _is_still_there(self, file: BinaryIO) -> bool:
        file.seek(self._place - len(self._last))
        return file.read(len(self._last)) == self._last
