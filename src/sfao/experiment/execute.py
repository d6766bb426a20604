"""A run from its configuration to its record."""

from collections.abc import Callable
from pathlib import Path

from sfao.benchmarks.sources import load_dataset
from sfao.benchmarks.suite import BENCHMARKS
from sfao.experiment.config import RunConfig
from sfao.experiment.errors import ConfigError
from sfao.experiment.folder import occupied
from sfao.experiment.record import Record
from sfao.experiment.run import CHECKPOINT_SECONDS, Report, Run


def execute(
    config: RunConfig,
    folder: Path,
    *,
    data_root: Path | None = None,
    resume: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    report: Report = lambda update: None,
    stopping: Callable[[], bool] = lambda: False,
) -> Record:
    """Do the run in its folder, or go on with it, or return the record it left when it was done."""
    dataset = load_dataset(BENCHMARKS[config.benchmark].dataset, data_root)
    try:
        run = Run(config, dataset, folder, checkpoint_seconds)
    except ValueError as error:  # a number of tasks that does not fit the classes, say
        raise ConfigError(str(error)) from error
    with occupied(folder, config, resume=resume) as finished:
        return finished or run.execute(report, stopping)
