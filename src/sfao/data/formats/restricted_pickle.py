"""Reading the pickles of CIFAR's python version without running what a pickle may ask to run.

An ordinary pickle.load calls whatever the file names. This one knows the few names in the publishers' files,
replaces each by a harmless stand-in, and refuses all others before anything is called.
"""

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sfao.data.errors import DataError
from sfao.data.formats.file_layout import Images


def load_pickle(path: Path) -> dict[bytes, Any]:
    """Read the dictionary in a file of Python 2 or 3, its keys as bytes, its arrays as NumPy arrays of bytes."""
    try:
        value = _RestrictedUnpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except OSError:
        raise
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except Exception as error:  # a damaged pickle can make the unpickler raise almost anything
        raise DataError(f"{path}: must be a whole pickle, got one that is truncated or damaged ({error})") from error
    if not isinstance(value, dict):
        raise DataError(f"{path}: must hold a dictionary, got {type(value).__name__}")
    return {_as_bytes(key): _as_array(item) for key, item in value.items()}


# The one in Python: the one in C reserves, and fills, as many gigabytes as a single damaged index asks for.
class _RestrictedUnpickler(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        stand_in = STAND_INS.get((module, name))
        if stand_in is None:
            raise DataError(
                f"a pickle of images must name nothing but arrays, got {module}.{name}; it was refused, nothing was run"
            )
        # A new function for every load: what a file may set as attributes on it is gone with it.
        return lambda *arguments: stand_in(*arguments)


class _PickledDtype:
    def __init__(self, code: object) -> None:
        if code not in (b"u1", "u1"):
            raise DataError(f"arrays must be of bytes (u1), got {code!r}")

    def __setstate__(self, state: object) -> None:
        """Ignore byte order and flags: they say nothing about single bytes."""


class _PickledArray:
    array: Images | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran_order, raw = state
        if not (isinstance(dtype, _PickledDtype) and isinstance(raw, bytes)):
            raise DataError("arrays must be of bytes (u1), got another kind")
        self.array = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran_order else "C")


def _encode(text: str, encoding: object) -> bytes:
    # Python 3 writes bytes in an old protocol as latin-1 text that is to be encoded again.
    if encoding not in ("latin1", b"latin1"):
        raise DataError(f"bytes must be written as latin1, got {encoding!r}")
    return text.encode("latin1")


STAND_INS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): lambda *_: _PickledArray(),
    ("numpy._core.multiarray", "_reconstruct"): lambda *_: _PickledArray(),
    ("numpy", "ndarray"): lambda *_: _PickledArray(),
    ("numpy", "dtype"): lambda code, *_: _PickledDtype(code),
    ("_codecs", "encode"): _encode,
}


def _as_bytes(key: object) -> bytes:
    return key if isinstance(key, bytes) else str(key).encode()


def _as_array(value: object) -> object:
    return value.array if isinstance(value, _PickledArray) else value
