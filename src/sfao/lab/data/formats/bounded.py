"""Reading no more than a file can rightly hold, so that a bomb is refused before it is unpacked."""

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from sfao.lab.data.errors import DataError


def read_bounded(path: Path, most: int) -> bytes:
    """Return the bytes of a file; a DataError when there are more than `most`."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise DataError(f"{path}: must hold at most {most} bytes, got {size}")
        return file.read(size)


@contextmanager
def open_packed(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading, unpacked as it is read where its name ends in .gz."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield cast(IO[bytes], file)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: must be a whole gzip file, got a truncated or damaged one ({error})") from error
