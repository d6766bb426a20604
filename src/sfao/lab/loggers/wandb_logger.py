"""A log for Weights & Biases: offline, to be sent with `wandb sync`, unless WANDB_MODE says otherwise."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from sfao.lab.loggers.csv_logger import CSVLogger
from sfao.lab.loggers.logger import Logger, write_whole

if TYPE_CHECKING:
    import wandb

PROJECT = "sfao"
#: Where wandb tells the processes that a program starts how to reach its service, the process that writes.
SERVICE = "WANDB_SERVICE"
#: The runs of this program that are not closed, by id: wandb has no second one of an id.
_open_runs: dict[str, "wandb.Run"] = {}


class WandbLogger(Logger):
    """Values as the history of a run of wandb, in the folder `wandb`; their horizontal axis is `step`.

    ``wandb sync FOLDER/wandb/offline-run-*`` sends them, and WANDB_MODE=online sends them at once. The project is
    WANDB_PROJECT, or `sfao`. A process that is killed takes with it what wandb has not written yet, and nobody can
    read that back: so `wandb/log.csv` holds the values too, and a resumed log that is offline is written anew from it.
    """

    name = "wandb"
    libraries = ("wandb",)
    place = "wandb/log.csv"

    def _open(self, run_name: str, config: dict[str, object]) -> dict[str, int]:
        import wandb

        mode = os.environ.get("WANDB_MODE", "offline")
        self._journal = CSVLogger(self.folder / "wandb", resume=True)
        told = self._journal.read()
        number = self._id = self._choose_id()
        if number in _open_runs:  # a notebook whose cell was interrupted
            _open_runs.pop(number).finish(exit_code=1)
        if mode == "offline":
            _remove_runs(self.folder / "wandb", number)
        with _own_service():
            self._run = wandb.init(
                id=number,
                resume="allow",
                dir=str(self.folder.resolve()),  # the service may have been started in another folder
                mode=mode,
                project=os.environ.get("WANDB_PROJECT", PROJECT),
                name=run_name,
                config=config,
                reinit="create_new",  # a run that the program has open stays its own
                settings=wandb.Settings(silent=True, console="off"),
            )
        _open_runs[number] = self._run
        self._run.define_metric("*", step_metric="step")
        if mode == "offline":
            for step, rows in groupby(told, key=lambda row: row[0]):
                self._run.log({**{name: value for _, name, value in rows}, "step": step})
        return {name: step for step, name, _ in told}

    def _choose_id(self) -> str:
        """Return the id of the run, the same one whenever the log is resumed."""
        file = self.folder / "wandb" / "id"
        if not file.exists():
            write_whole(file, uuid4().hex[:8])
        return file.read_text()

    def _write(self, values: dict[str, float], step: int) -> None:
        self._journal.log(values, step)
        self._run.log({**values, "step": step})

    def flush(self) -> None:
        """Do nothing: values are in `log.csv`, and with wandb's own process, as soon as they are logged."""

    def close(self, *, failed: bool = False) -> None:
        self._journal.close()
        self._run.finish(exit_code=int(failed))
        if _open_runs.get(self._id) is self._run:
            del _open_runs[self._id]


@contextmanager
def _own_service() -> Iterator[None]:
    """Let wandb start a service for this process, unless it has one.

    That of a parent process, which wandb would take, ends with the parent, and has a run whose process was killed open
    for as long as it lives: the run could not be resumed.
    """
    inherited = os.environ.pop(SERVICE, None)
    try:
        yield
    finally:
        if inherited is not None:
            os.environ.setdefault(SERVICE, inherited)


def _remove_runs(folder: Path, number: str) -> None:
    """Remove what earlier processes wrote of a run.

    Renamed first: the service of a process just killed lives a moment longer, and may write while files are removed.
    """
    for old in folder.glob(f"offline-run-*-{number}"):
        old.rename(folder / f".removed-{uuid4().hex}")
    for removed in folder.glob(".removed-*"):
        shutil.rmtree(removed, ignore_errors=True)
