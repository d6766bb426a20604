"""The pickles of CIFAR's python version, read without running what a pickle may ask to run.

An ordinary `pickle.load` calls whatever the file names. This one knows the few names in the publishers' files,
replaces each by a harmless stand-in, and refuses all others before anything is called.
"""

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sfao.lab.data.arrays import Images
from sfao.lab.data.errors import DataError

#: More than a batch of 50,000 images needs; every opcode makes one small object at most.
MAX_OPCODES = 1_000_000
#: Opcodes that allocate what they ask for, hash what they are given, or make objects that no batch has.
REFUSED = (
    *(pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER, pickle.EMPTY_SET, pickle.ADDITEMS),
    *(pickle.FROZENSET, pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.PERSID, pickle.BINPERSID),
)
#: Where the keys are on the stack when an opcode fills a dictionary.
KEYS = {
    pickle.SETITEM[0]: slice(-2, None, 2),
    pickle.SETITEMS[0]: slice(0, None, 2),
    pickle.DICT[0]: slice(0, None, 2),
}


def load_pickle(path: Path, limit: int) -> dict[bytes, Any]:
    """Read the dictionary in a file of Python 2 or 3, its keys as bytes, its arrays as NumPy arrays of bytes.

    A file of more than `limit` bytes is refused, and so is one that unpacks to more than it holds.
    """
    if (size := path.stat().st_size) > limit:
        raise DataError(f"{path}: must hold at most {limit} bytes, got {size}")
    try:
        value = _RestrictedUnpickler(path.read_bytes()).load()
    except (OSError, MemoryError):
        raise
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except Exception as error:  # a damaged pickle can make the unpickler raise almost anything
        said = " ".join(str(error).split())[:120]
        raise DataError(f"{path}: must be a whole pickle, got one that is truncated or damaged ({said})") from error
    if not isinstance(value, dict):
        raise DataError(f"{path}: must hold a dictionary, got {type(value).__name__}")
    return {
        key if isinstance(key, bytes) else str(key).encode(): item.array if isinstance(item, _PickledArray) else item
        for key, item in value.items()
    }


# The one in Python: the one in C reserves, and fills, as many gigabytes as a single damaged index asks for.
class _RestrictedUnpickler(pickle._Unpickler):
    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")
        self.opcodes_left = MAX_OPCODES
        #: Every text in the file is encoded once at most, so all together are no longer than the file.
        self.letters_left = len(content)

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        if (module, name) == ("_codecs", "encode"):
            return lambda *arguments: self._encode(*arguments)
        stand_in = STAND_INS.get((module, name))
        if stand_in is None:
            raise DataError(
                f"a pickle of images must name nothing but arrays, got {module[:60]}.{name[:60]}; "
                "it was refused, nothing was run"
            )
        # A new function for every load: what a file may set as attributes on it is gone with it.
        return lambda *arguments: stand_in(*arguments)

    def _encode(self, text: str, encoding: object) -> bytes:
        # Python 3 writes bytes in an old protocol as latin-1 text that is to be encoded again.
        if encoding not in ("latin1", b"latin1"):
            raise DataError("bytes must be written as latin1, got another encoding")
        self.letters_left -= len(text)
        if self.letters_left < 0:
            raise DataError("a pickle of images must not unpack to more than it holds, got one that repeats its texts")
        return text.encode("latin1")


def _limit(code: int, load: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return the function of an opcode with its uses counted, and with texts as the only keys of dictionaries."""

    def run(unpickler: Any) -> None:
        unpickler.opcodes_left -= 1
        if unpickler.opcodes_left < 0:
            raise DataError(f"a pickle of images must take at most {MAX_OPCODES} steps, got more")
        if code in KEYS and not all(isinstance(key, str | bytes) for key in unpickler.stack[KEYS[code]]):
            raise DataError("the keys of a dictionary must be texts, got another kind")
        load(unpickler)

    return run


_RestrictedUnpickler.dispatch = {
    code: _limit(code, load) for code, load in pickle._Unpickler.dispatch.items() if bytes([code]) not in REFUSED
}


class _PickledDtype:
    def __init__(self, code: object) -> None:
        if code not in (b"u1", "u1"):
            raise DataError("arrays must be of bytes (u1), got another kind")

    def __setstate__(self, state: object) -> None:
        """Ignore byte order and flags: they say nothing about single bytes."""


class _PickledArray:
    array: Images | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran_order, raw = state
        if not (isinstance(dtype, _PickledDtype) and isinstance(raw, bytes)):
            raise DataError("arrays must be of bytes (u1), got another kind")
        self.array = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran_order else "C")


STAND_INS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): lambda *_: _PickledArray(),
    ("numpy._core.multiarray", "_reconstruct"): lambda *_: _PickledArray(),
    ("numpy", "ndarray"): lambda *_: _PickledArray(),
    ("numpy", "dtype"): lambda code, *_: _PickledDtype(code),
}
