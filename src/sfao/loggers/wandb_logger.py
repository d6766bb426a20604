"""A log for Weights & Biases: offline, to be sent with `wandb sync`, unless WANDB_MODE says otherwise."""

import json
import os
import time
from uuid import uuid4

from sfao.loggers.logger import Logger

PROJECT = "sfao"


class WandbLogger(Logger):
    """Values as the history of a run of wandb, in the folder `wandb`; their horizontal axis is `step`.

    ``wandb sync FOLDER/wandb/offline-run-*`` sends them, and WANDB_MODE=online sends them at once. The project is
    WANDB_PROJECT, or `sfao`. A resumed log is one more offline run with the same id. As nobody can read back what
    wandb has sent, `wandb.json` holds the id and the last step of each name.
    """

    name = "wandb"
    libraries = ("wandb",)
    place = "wandb.json"

    def _open(self, run_name: str, config: dict[str, object]) -> dict[str, int]:
        import wandb

        known = json.loads(self.path.read_text()) if self.path.exists() else {"id": uuid4().hex[:8], "steps": {}}
        self._id: str = known["id"]
        self._steps: dict[str, int] = known["steps"]
        self._wait_for_a_new_second()
        self._run = wandb.init(
            id=self._id,
            resume="allow",
            dir=str(self.folder),
            mode=os.environ.get("WANDB_MODE", "offline"),
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=run_name,
            config=config,
            reinit="create_new",  # a run that the program has open stays its own
            settings=wandb.Settings(silent=True, console="off"),
        )
        self._run.define_metric("*", step_metric="step")
        self._note()
        return dict(self._steps)

    def _wait_for_a_new_second(self) -> None:
        """Wait until wandb names a new folder: by second and id, and what goes to an old one is lost."""
        while any(self.folder.glob(f"wandb/*run-{time.strftime('%Y%m%d_%H%M%S')}-{self._id}")):
            time.sleep(0.05)

    def _write(self, values: dict[str, float], step: int) -> None:
        self._run.log({**values, "step": step})
        self._steps.update(dict.fromkeys(values, step))
        self._note()

    def _note(self) -> None:
        beside = self.path.with_suffix(".part")
        beside.write_text(json.dumps({"id": self._id, "steps": self._steps}))
        os.replace(beside, self.path)

    def flush(self) -> None:
        """Do nothing: values go to wandb's own process as they are logged."""

    def close(self, *, failed: bool = False) -> None:
        self._run.finish(exit_code=int(failed))
