"""The folder of a run: one configuration, one process at a time."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from sfao.experiment.checkpoint import LATEST, PREVIOUS
from sfao.experiment.config import RunConfig, complete_settings, read_yaml
from sfao.experiment.errors import FolderError, reraise_as
from sfao.experiment.files import write_text
from sfao.experiment.record import RECORD, Record, is_same_data, load_record

CONFIG, LOCK = "config.yaml", ".lock"


@contextmanager
def occupy(folder: Path, config: RunConfig, *, resume: bool) -> Iterator[Record | None]:
    """Lock the folder for this run; yield the record if the run is finished already.

    Raises a FolderError when another process holds the lock, when the folder contains a different run, or an
    unfinished one without `resume`. Nothing is written into a folder that is refused. A run that failed is repeated.
    """
    check_free(folder)
    check_folder(folder, config, resume=resume)
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder):
        check_folder(folder, config, resume=resume)
        write_text(folder / CONFIG, yaml.safe_dump(config.model_dump(), sort_keys=False))
        for begun in folder.glob(".*.part"):  # left by a process that was killed while writing
            begun.unlink()
        finished = finished_record(folder)
        if finished is None:  # a failed run resumes from its checkpoint if there is one
            (folder / RECORD).unlink(missing_ok=True)
        yield finished


@contextmanager
def lock_folder(folder: Path, doing: str = "running") -> Iterator[None]:
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise FolderError(f"`out` must be free, but another process is {doing} in {folder}") from error
    try:
        yield
    finally:
        lock.release()


def check_free(folder: Path, doing: str = "running") -> None:
    """Refuse a folder in which another process is running; checked first, as its content may still change."""
    if (folder / LOCK).exists():
        with lock_folder(folder, doing):
            pass


def finished_record(folder: Path) -> Record | None:
    """Return the record of a run that is done or diverged; None when it failed or left no record."""
    if not (folder / RECORD).exists():
        return None
    with reraise_as(FolderError):
        record = load_record(folder)
    return None if record.status == "failed" else record


def check_folder(folder: Path, config: RunConfig, *, resume: bool) -> None:
    """Refuse a folder that contains anything but this run; nothing is written."""
    if folder.exists() and not folder.is_dir():
        raise FolderError(f"`out` must be a folder, got the file {folder}")
    # Hidden files are the lock and the unfinished files of a killed process.
    if not folder.exists() or all(path.name.startswith(".") for path in folder.iterdir()):
        return
    if not (folder / CONFIG).exists():
        raise FolderError(f"`out` must be new or hold a run, but {folder} holds other files")
    # A setting that did not exist yet when the run was begun had the value that is its default now.
    held, wanted = complete_settings(read_yaml(folder / CONFIG)), config.model_dump()
    held = {**{name: field.default for name, field in RunConfig.model_fields.items()}, **held}
    differing = [name for name in wanted if held[name] != wanted[name]]
    if differing:
        name = differing[0]
        raise FolderError(
            f"`out` must be new or hold this run, but {folder} holds another: "
            f"`{name}` is {held[name]!r} there and {wanted[name]!r} here"
        )
    unfinished = any((folder / name).exists() for name in (LATEST, PREVIOUS)) and not (folder / RECORD).exists()
    if unfinished and not resume:
        raise FolderError(f"{folder} holds an unfinished run; add --resume to go on with it")


def check_same_data(folder: Path, held: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to resume a run on other data, and to reuse results on other data."""
    if not is_same_data(held, wanted):
        other = held.get("digest") != wanted.get("digest")
        raise FolderError(
            f"`out` must be new or hold a run on the same data, but {folder} holds one on {held.get('train')} training "
            f"and {held.get('test')} test images of {held.get('name')}, here are {wanted['train']} and {wanted['test']}"
            f"{' with other values' if other else ''}"
        )
