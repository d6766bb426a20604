"""Loggers of values over steps: a CSV file, TensorBoard, Weights & Biases, MLflow, each imported when used."""

import csv
import json
import logging
import os
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from io import StringIO
from itertools import groupby
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Self, SupportsFloat
from uuid import uuid4

from sfao.checks import explain_missing
from sfao.lab.safe_io import open_file, read_file, read_json

#: The longest that a library may hold back values while steps are logged, in seconds.
FLUSH_SECONDS = 2
#: The project of wandb and the experiment of MLflow, unless the environment names another.
PROJECT = "sfao"


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


def _read_number(name: str, value: SupportsFloat) -> float:
    if not isinstance(name, str) or not name or not name.isprintable():
        raise ValueError(f"`values` must have names of one line of text, got {name!r}")
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"`values` must be numbers, got {value!r} for {name!r}") from error


class CSVLogger(Logger):
    """Values in `log.csv`, a line `step,name,value` for each, on the disk as soon as they are logged.

    With pandas: ``read_csv("log.csv").pivot(index="step", columns="name", values="value")`` has one column per name.
    """

    name = "csv"
    place = "log.csv"
    header: ClassVar[list[str]] = ["step", "name", "value"]

    def _open(self, run_name: str, config: dict[str, object]) -> dict[str, int]:
        held = {name: step for step, name, _ in self.read()} if self.path.exists() else {}
        self._file = open_file(self.path, os.O_RDWR | os.O_CREAT, "r+b")
        end = self._file.read().rfind(b"\n") + 1  # a killed process may leave an unfinished line
        self._file.truncate(end)
        self._file.seek(end)
        if end == 0:
            self._write_rows([self.header])
        return held

    def read(self) -> list[tuple[int, str, float]]:
        """Return the steps, names and values of the whole lines of the file."""
        data = read_file(self.path)
        lines = csv.reader(StringIO(data[: data.rfind(b"\n") + 1].decode(errors="replace"), newline=""))
        try:
            rows = [row for row in lines if row != self.header]
            return [(int(step), name, float(value)) for step, name, value in rows]
        except (csv.Error, ValueError) as error:
            raise ValueError(f"{self.path} must be a log of steps, names and values: {error}") from error

    def _write(self, values: dict[str, float], step: int) -> None:
        self._write_rows([[str(step), name, repr(value)] for name, value in values.items()])

    def _write_rows(self, rows: list[list[str]]) -> None:
        text = StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        self._file.write(text.getvalue().encode())
        self.flush()

    def flush(self) -> None:
        self._file.flush()

    def close(self, *, failed: bool = False) -> None:
        self._file.close()


class TensorBoardLogger(Logger):
    """Values as scalars of TensorBoard, in the folder `tensorboard`: ``tensorboard --logdir FOLDER`` shows them."""

    name = "tensorboard"
    libraries = ("tensorboard", "torch.utils.tensorboard")
    place = "tensorboard"

    def _open(self, run_name: str, config: dict[str, object]) -> dict[str, int]:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from torch.utils.tensorboard import SummaryWriter

        self.path.mkdir(exist_ok=True)
        events = EventAccumulator(str(self.path), size_guidance={"scalars": 1})  # one, the last
        events.Reload()
        tags = events.Tags()
        self._writer = SummaryWriter(str(self.path), flush_secs=FLUSH_SECONDS)
        if config and "config/text_summary" not in tags["tensors"]:
            lines = [f"| {name} | `{value}` |" for name, value in config.items()]
            self._writer.add_text("config", "\n".join([f"| {run_name} | |", "|---|---|", *lines]))
        return {tag: events.Scalars(tag)[-1].step for tag in tags["scalars"]}

    def _write(self, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def flush(self) -> None:
        self._writer.flush()

    def close(self, *, failed: bool = False) -> None:
        self._writer.close()


class WandbLogger(Logger):
    """Values as the history of a run of wandb, in the folder `wandb`; their horizontal axis is `step`.

    ``wandb sync FOLDER/wandb/offline-run-*`` sends them, and WANDB_MODE=online sends them at once. The project is
    WANDB_PROJECT, or `sfao`. What wandb has not written yet when a process is killed is lost, so `wandb/log.csv` holds
    the values too, and a resumed log that is offline is written anew from it.
    """

    name = "wandb"
    libraries = ("wandb",)
    place = "wandb/log.csv"

    def _open(self, run_name: str, config: dict[str, object]) -> dict[str, int]:
        import wandb

        mode, own = os.environ.get("WANDB_MODE", "offline"), self.folder / "wandb"
        self._journal = CSVLogger(own, resume=True)
        known = self._journal.read()
        if not (own / "id").exists():
            with open(own / "id", "x") as file:
                file.write(uuid4().hex[:8])
        number = read_file(own / "id").decode()
        if mode == "offline":
            _remove_runs(own, number)
        # wandb would take the service of a parent process, which still has the run of a killed process open.
        inherited = os.environ.pop("WANDB_SERVICE", None)
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
        if inherited is not None:
            os.environ.setdefault("WANDB_SERVICE", inherited)
        self._run.define_metric("*", step_metric="step")
        if mode == "offline":
            for step, rows in groupby(known, key=lambda row: row[0]):
                self._run.log({**{name: value for _, name, value in rows}, "step": step})
        return {name: step for step, name, _ in known}

    def _write(self, values: dict[str, float], step: int) -> None:
        self._journal.log(values, step)
        self._run.log({**values, "step": step})

    def flush(self) -> None:
        """Do nothing: values are in `log.csv`, and with wandb's own process, as soon as they are logged."""

    def close(self, *, failed: bool = False) -> None:
        self._journal.close()
        self._run.finish(exit_code=int(failed))


def _remove_runs(folder: Path, number: str) -> None:
    """Remove what earlier processes wrote of a run.

    Renamed first: the service of a process just killed lives a moment longer, and may write while files are removed.
    """
    for old in folder.glob(f"offline-run-*-{number}"):
        old.rename(folder / f".removed-{uuid4().hex}")
    for removed in folder.glob(".removed-*"):
        shutil.rmtree(removed, ignore_errors=True)


class MLflowLogger(Logger):
    """Values as metrics of a run of MLflow, in `mlflow.db`: ``mlflow ui --backend-store-uri sqlite:///FOLDER/mlflow.db``.

    The experiment is MLFLOW_EXPERIMENT_NAME, or `sfao`. Values are written together, every two seconds, as each call
    takes ten milliseconds. `mlflow.json` says where the run is.
    """

    name = "mlflow"
    libraries = ("mlflow", "sqlalchemy", "alembic")
    place = "mlflow.json"
    #: The most values and settings that MLflow takes in one call, and the longest text of a setting.
    max_metrics, max_params, max_letters = 1000, 100, 6000

    def _open(self, run_name: str, config: dict[str, object]) -> dict[str, int]:
        from mlflow.tracking import MlflowClient

        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # it tells of every table that it makes
        self._waiting: list[Any] = []
        self._flushed = time.monotonic()
        if not self.path.exists():
            uri = os.environ.get("MLFLOW_TRACKING_URI") or self._make_database()
            self._client = MlflowClient(uri)
            self._run = self._start_run(run_name, config, is_local=uri.startswith("sqlite:"))
            with open(self.path, "x") as file:
                json.dump({"uri": uri, "run": self._run}, file)
            return {}
        known = read_json(self.path)
        self._client, self._run = MlflowClient(known["uri"]), str(known["run"])
        self._client.update_run(self._run, status="RUNNING")
        held = self._client.get_run(self._run).data.metrics
        return {name: max(each.step for each in self._client.get_metric_history(self._run, name)) for name in held}

    def _make_database(self) -> str:
        """Return the address of the database; a new one is made under another name, then renamed.

        MLflow makes its tables for seconds, and refuses for ever a database whose process was killed meanwhile.
        """
        from mlflow.tracking import MlflowClient

        database = self.folder.resolve() / "mlflow.db"
        if not database.exists():
            part = database.with_name(f".mlflow.db.{uuid4().hex}.part")  # MLflow keeps connections, by name
            MlflowClient(f"sqlite:///{part}")
            os.replace(part, database)
        return f"sqlite:///{database}"

    def _start_run(self, run_name: str, config: dict[str, object], is_local: bool) -> str:
        from mlflow.entities import Param

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        experiment = self._client.get_experiment_by_name(name)
        # Named, because the default of a SQLite store is a folder beside whoever runs this.
        artifacts = (self.folder / "mlflow-artifacts").resolve().as_uri() if is_local else None
        number = experiment.experiment_id if experiment else self._client.create_experiment(name, artifacts)
        run: str = self._client.create_run(number, run_name=run_name).info.run_id
        params = [Param(key, str(value)[: self.max_letters]) for key, value in config.items()]
        for first in range(0, len(params), self.max_params):
            self._client.log_batch(run, params=params[first : first + self.max_params])
        return run

    def _write(self, values: dict[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._waiting += [Metric(name, value, now, step) for name, value in values.items()]
        if time.monotonic() - self._flushed >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        for first in range(0, len(self._waiting), self.max_metrics):
            self._client.log_batch(self._run, metrics=self._waiting[first : first + self.max_metrics])
        self._waiting, self._flushed = [], time.monotonic()

    def close(self, *, failed: bool = False) -> None:
        self.flush()
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")


#: The loggers by the name that `--log` and the extra of the package have.
LOGGERS: dict[str, type[Logger]] = {
    logger.name: logger for logger in (CSVLogger, TensorBoardLogger, WandbLogger, MLflowLogger)
}
