"""The interface of loggers: named values over steps, in a folder, without doubled steps after a resume."""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from numbers import Integral
from pathlib import Path
from typing import ClassVar, Self, SupportsFloat

from sfao.checks import explain_missing

#: The longest that a library may hold back values while steps are logged, in seconds.
FLUSH_SECONDS = 2


class Logger(ABC):
    """Values by name over steps, such as ``{"layers/fc1/kept": 0.7}`` at step 120.

    Steps never go back. A log that is resumed leaves out what it holds already: a training loop that goes on from a
    checkpoint repeats the steps since then.

    Args:
        folder: where the log lies; made if it is not there.
        run_name: the name of the run in the library, which a CSV file has no place for.
        config: settings to keep beside the values, which a CSV file has no place for either.
        resume: go on with the log in the folder, if there is one; it is refused otherwise.
    """

    #: The name of the logger, and of the extra that brings its libraries.
    name: ClassVar[str]
    libraries: ClassVar[tuple[str, ...]] = ()
    #: The file or folder, inside `folder`, by which a log is known.
    place: ClassVar[str]

    def __init__(
        self,
        folder: Path | str,
        *,
        run_name: str = "run",
        config: Mapping[str, object] | None = None,
        resume: bool = False,
    ) -> None:
        self.check_libraries()
        self.folder = Path(folder)
        self.path = self.folder / self.place
        if self.path.exists() and not resume:
            raise ValueError(f"`folder` must hold no log yet, but {self.path} is there; `resume=True` goes on with it")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._step = 0
        self._latest: dict[str, int] = {}
        self._held = self._open(run_name, dict(config or {}))

    @classmethod
    def check_libraries(cls) -> None:
        """Raise MissingLibrary, with the fix, if a library of this logger cannot be imported."""
        for library in cls.libraries:
            try:
                import_module(library)
            except ImportError as error:
                raise explain_missing(error, library, f"the logger {cls.name!r}", cls.name) from None

    def log(self, values: Mapping[str, SupportsFloat], step: int) -> None:
        """Log values by name at a step, which is larger than the last one of each name and not smaller than any."""
        if not isinstance(step, Integral) or isinstance(step, bool) or step < 0:
            raise ValueError(f"`step` must be a whole number of at least 0, got {step!r}")
        if step < self._step:
            raise ValueError(f"`step` must not go back, got {step} after {self._step}")
        numbers = {name: _read_number(name, value) for name, value in values.items()}
        for name in numbers:
            if self._latest.get(name, -1) == step:
                raise ValueError(f"`values` must have one value per name and step, got {name!r} at step {step} again")
        self._step = int(step)
        self._latest.update(dict.fromkeys(numbers, self._step))
        new = {name: number for name, number in numbers.items() if step > self._held.get(name, -1)}
        if new:
            self._write(new, self._step)

    @abstractmethod
    def flush(self) -> None:
        """Hand everything logged so far to the disk, or to the library's own process."""

    @abstractmethod
    def close(self, *, failed: bool = False) -> None:
        """End the log; `failed` is how the run ended, for libraries that tell."""

    @abstractmethod
    def _open(self, run_name: str, config: dict[str, object]) -> dict[str, int]:
        """Open the log, and return the last step that it holds of each name."""

    @abstractmethod
    def _write(self, values: dict[str, float], step: int) -> None:
        """Write values that the log does not hold yet."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close(failed=kind is not None)


def write_whole(path: Path, text: str) -> None:
    """Write beside the path, then rename: a process that is killed leaves the whole file or none."""
    for begun in path.parent.glob(f".{path.name}.*part"):  # left by a process that was killed
        begun.unlink(missing_ok=True)
    beside = path.with_name(f".{path.name}.{os.urandom(8).hex()}.part")
    with open(beside, "x", encoding="utf-8") as file:  # "x" follows no link
        file.write(text)
    os.replace(beside, path)


def open_without_links(path: str, flags: int) -> int:
    """Open a file as `open` does with this as its `opener`, but no link to another."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def _read_number(name: str, value: SupportsFloat) -> float:
    if not isinstance(name, str) or not name or not name.isprintable():
        raise ValueError(f"`values` must have names of one line of text, got {name!r}")
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`values` must be numbers, got {value!r} for {name!r}") from error
