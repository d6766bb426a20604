"""A log for Weights & Biases: offline, to be sent with `wandb sync`, unless WANDB_MODE says otherwise."""

import os
import shutil
from itertools import groupby
from uuid import uuid4

from sfao.loggers.csv_logger import CSVLogger
from sfao.loggers.logger import Logger

PROJECT = "sfao"


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
        number = self._choose_id()
        if mode == "offline":
            for old in self.folder.glob(f"wandb/offline-run-*-{number}"):
                shutil.rmtree(old)
        self._run = wandb.init(
            id=number,
            resume="allow",
            dir=str(self.folder),
            mode=mode,
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=run_name,
            config=config,
            reinit="create_new",  # a run that the program has open stays its own
            settings=wandb.Settings(silent=True, console="off"),
        )
        self._run.define_metric("*", step_metric="step")
        if mode == "offline":
            for step, rows in groupby(told, key=lambda row: row[0]):
                self._run.log({**{name: value for _, name, value in rows}, "step": step})
        return {name: step for step, name, _ in told}

    def _choose_id(self) -> str:
        """Return the id of the run, the same one whenever the log is resumed."""
        file = self.folder / "wandb" / "id"
        if not file.exists():
            file.write_text(uuid4().hex[:8])
        return file.read_text()

    def _write(self, values: dict[str, float], step: int) -> None:
        self._journal.log(values, step)
        self._run.log({**values, "step": step})

    def flush(self) -> None:
        """Do nothing: values are in `log.csv`, and with wandb's own process, as soon as they are logged."""

    def close(self, *, failed: bool = False) -> None:
        self._journal.close()
        self._run.finish(exit_code=int(failed))
