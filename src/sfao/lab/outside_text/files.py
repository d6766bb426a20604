"""Files from outside as text: UTF-8, no larger than a limit."""

from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from pathlib import Path

from sfao.lab.outside_text.limits import OutsideTextError, check_length


def read_text(path: Path, most: int) -> str:
    """Return the text of a file; raise an OutsideTextError where it has more bytes than `most` or is no text."""
    with open(path, "rb") as file:
        data = file.read(most + 1)  # no more, whatever the file is: a device has no end
    check_length(len(data), most)
    return decode(data)


def read_each_line(path: Path, most: int) -> Iterator[bytes]:
    """Yield the lines of a file, without their ends; raise an OutsideTextError at one with more bytes than `most`."""
    with open(path, "rb") as file:
        while line := file.readline(most + 1):
            check_length(len(line), most)
            yield line.rstrip(b"\r\n")


def decode(data: bytes) -> str:
    """Return bytes as text; a mark of UTF-8 at their beginning is left out."""
    if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise OutsideTextError("must be text in UTF-8, got UTF-16")
    try:
        text = data.removeprefix(BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise OutsideTextError(f"must be text in UTF-8, got the byte 0x{data[error.start]:02x}", line) from None
    if "\0" in text:
        raise OutsideTextError("must be text, got a NUL byte", text.count("\n", 0, text.index("\0")) + 1)
    return text
