"""The folder of a run: one configuration, one process at a time."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from sfao.lab.run.checkpoint import LATEST, PREVIOUS, Label, remove_checkpoints
from sfao.lab.run.config import RunConfig, complete_settings, read_yaml
from sfao.lab.run.errors import FolderError, reraise_as
from sfao.lab.run.files import check_free, lock_folder, write_text
from sfao.lab.run.record import RECORD, Record, is_same_data, load_record
from sfao.lab.run.run_log import STEPS
from sfao.lab.safe_io import read_file

CONFIG = "config.yaml"
#: The files of a run. None may be a link: a run would then read or write what lies elsewhere. Nor a pipe.
FILES = (CONFIG, RECORD, STEPS, LATEST, PREVIOUS)


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
        text = yaml.safe_dump(config.model_dump(), sort_keys=False)
        if not (folder / CONFIG).exists() or read_file(folder / CONFIG) != text.encode():
            write_text(folder / CONFIG, text)
        for begun in folder.glob(".*.part"):  # left by a process that was killed while writing
            begun.unlink()
        finished = finished_record(folder)
        if finished is None:  # a failed run resumes from its checkpoint if there is one
            (folder / RECORD).unlink(missing_ok=True)
        yield finished


def clear_finished(folder: Path) -> None:
    """Remove the checkpoints of a finished run, which a process that was killed at its end left."""
    if any((folder / name).exists() for name in (LATEST, PREVIOUS)):
        with lock_folder(folder):
            remove_checkpoints(folder)


def finished_record(folder: Path) -> Record | None:
    """Return the record of a run that is done or diverged; None when it failed or left no record."""
    try:
        with reraise_as(FolderError):
            record = load_record(folder)
    except FileNotFoundError:
        return None
    return None if record.status == "failed" else record


def check_folder(folder: Path, config: RunConfig, *, resume: bool) -> None:
    """Refuse a folder that contains anything but this run; nothing is written."""
    if folder.exists() and not folder.is_dir():
        raise FolderError(f"`out` must be a folder, got the file {folder}")
    # Hidden files are the lock and the unfinished files of a killed process.
    if not folder.exists() or all(path.name.startswith(".") for path in folder.iterdir()):
        return
    for path in (folder / name for name in FILES):
        if path.is_symlink() or (path.exists() and not path.is_file()):
            got = "a link" if path.is_symlink() else "a folder" if path.is_dir() else "a pipe or device"
            raise FolderError(f"{path} must be a file of its own, got {got}")
    if not (folder / CONFIG).exists():
        raise FolderError(f"`out` must be new or hold a run, but {folder} holds other files")
    difference = find_difference(read_yaml(folder / CONFIG), config)
    if difference:
        raise FolderError(f"`out` must be new or hold this run, but {folder} holds another: {difference}")
    unfinished = any((folder / name).exists() for name in (LATEST, PREVIOUS)) and not (folder / RECORD).exists()
    if unfinished and not resume:
        raise FolderError(f"{folder} holds an unfinished run; add --resume to continue it")


def find_difference(held: Mapping[str, Any], config: RunConfig) -> str:
    """Return the first setting in which a run differs from this one, in words; empty if none does."""
    held, wanted = complete_settings(dict(held)), config.model_dump()
    for name in wanted:
        if held.get(name) != wanted[name]:
            return f"`{name}` is {held.get(name)!r} there and {wanted[name]!r} here"
    return ""


def check_label(folder: Path, label: Label, config: RunConfig, data: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of another run, or on other data."""
    _check_same_run(folder / label.name, label.config, config)
    check_same_data(folder, label.data, data)


def check_record(folder: Path, record: Record, config: RunConfig, data: Mapping[str, Any]) -> None:
    """Refuse the record of another run, or on other data."""
    _check_same_run(folder / RECORD, record.config, config)
    check_same_data(folder, record.data, data)


def reuse_record(folder: Path, record: Record, config: RunConfig, data: Mapping[str, Any]) -> Record:
    """Return the record of this run, which is finished, and remove what a process killed at its end left behind."""
    check_record(folder, record, config, data)
    remove_checkpoints(folder)
    return record


def _check_same_run(path: Path, held: Mapping[str, Any], config: RunConfig) -> None:
    difference = find_difference(held, config)
    if difference:
        raise FolderError(
            f"{path} must be of the run in its folder, but it is of another: {difference}; remove it to continue"
        )


def check_same_data(folder: Path, held: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse to resume a run on other data, and to reuse results on other data."""
    if not is_same_data(held, wanted):
        other = held.get("digest") != wanted.get("digest")
        raise FolderError(
            f"`out` must be new or hold a run on the same data, but {folder} holds one on {held.get('train')} training "
            f"and {held.get('test')} test images of {held.get('name')}, here are {wanted['train']} and {wanted['test']}"
            f"{' with other values' if other else ''}"
        )
