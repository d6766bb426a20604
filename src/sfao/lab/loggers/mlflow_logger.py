"""A log for MLflow: a SQLite file in the folder, unless MLFLOW_TRACKING_URI says otherwise."""

import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sfao.lab.loggers.logger import FLUSH_SECONDS, Logger, write_whole
from sfao.lab.safe_io import read_json

if TYPE_CHECKING:
    from mlflow.entities import Metric

EXPERIMENT = "sfao"
#: The most values, and settings, that MLflow takes in one call, and the longest text of a setting.
MOST_METRICS, MOST_PARAMS, LONGEST_PARAM = 1000, 100, 6000


class MLflowLogger(Logger):
    """Values as metrics of a run of MLflow, in `mlflow.db`: ``mlflow ui --backend-store-uri sqlite:///FOLDER/mlflow.db``.

    The experiment is MLFLOW_EXPERIMENT_NAME, or `sfao`. Values are written together, every two seconds, as each call
    takes ten milliseconds. `mlflow.json` says where the run is.
    """

    name = "mlflow"
    libraries = ("mlflow", "sqlalchemy", "alembic")
    place = "mlflow.json"

    def _open(self, run_name: str, config: dict[str, object]) -> dict[str, int]:
        from mlflow.tracking import MlflowClient

        self._waiting: list[Metric] = []
        self._flushed = time.monotonic()
        if self.path.exists():
            known = read_json(self.path)
            with _quiet_database():
                self._client, self._run = MlflowClient(known["uri"]), str(known["run"])
            self._client.update_run(self._run, status="RUNNING")
            return self._read_last_steps()
        database = self.folder / "mlflow.db"
        uri = os.environ.get("MLFLOW_TRACKING_URI") or _address(database)
        is_local = uri == _address(database)
        with _quiet_database():
            if is_local and not database.exists():
                _make_tables(database)
            self._client = MlflowClient(uri)
            self._run = self._start_run(run_name, config, artifacts=self.folder if is_local else None)
        write_whole(self.path, json.dumps({"uri": uri, "run": self._run}))
        return {}

    def _start_run(self, run_name: str, config: dict[str, object], artifacts: Any) -> str:
        from mlflow.entities import Param

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        experiment = self._client.get_experiment_by_name(name)
        # Named, because the default of a SQLite store is a folder beside whoever runs this.
        where = None if artifacts is None else (artifacts / "mlflow-artifacts").resolve().as_uri()
        number = experiment.experiment_id if experiment else self._client.create_experiment(name, where)
        run: str = self._client.create_run(number, run_name=run_name).info.run_id
        params = [Param(key, str(value)[:LONGEST_PARAM]) for key, value in config.items()]
        for first in range(0, len(params), MOST_PARAMS):
            self._client.log_batch(run, params=params[first : first + MOST_PARAMS])
        return run

    def _read_last_steps(self) -> dict[str, int]:
        held = self._client.get_run(self._run).data.metrics
        return {name: max(each.step for each in self._client.get_metric_history(self._run, name)) for name in held}

    def _write(self, values: dict[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        self._waiting += [Metric(name, value, now, step) for name, value in values.items()]
        if time.monotonic() - self._flushed >= FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        for first in range(0, len(self._waiting), MOST_METRICS):
            self._client.log_batch(self._run, metrics=self._waiting[first : first + MOST_METRICS])
        self._waiting, self._flushed = [], time.monotonic()

    def close(self, *, failed: bool = False) -> None:
        self.flush()
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")


def _address(database: Path) -> str:
    return f"sqlite:///{database.resolve()}"


def _make_tables(database: Path) -> None:
    """Make a new database under another name, then rename it.

    MLflow makes its tables one by one, for seconds, and refuses for ever a database whose process was killed meanwhile.
    """
    from mlflow.tracking import MlflowClient

    for unfinished in database.parent.glob(f".{database.name}.*.part*"):  # of SQLite's journal too
        unfinished.unlink()
    beside = database.with_name(f".{database.name}.{uuid4().hex}.part")  # MLflow keeps connections, by name
    MlflowClient(_address(beside))
    os.replace(beside, database)


@contextmanager
def _quiet_database() -> Iterator[None]:
    """Keep from the screen that MLflow makes the tables of a new database."""
    logger = logging.getLogger("mlflow.store.db.utils")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)
