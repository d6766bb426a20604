"""One run, from its configuration to its record."""

from collections.abc import Callable, Sequence
from pathlib import Path

from sfao.lab.data.dataset import Dataset
from sfao.lab.run.config import RunConfig
from sfao.lab.run.errors import ConfigError
from sfao.lab.run.folder import occupy, reuse_record
from sfao.lab.run.progress import Report
from sfao.lab.run.record import Record, describe_dataset
from sfao.lab.run.run import CHECKPOINT_SECONDS, Run
from sfao.lab.run.run_log import open_loggers, parse_loggers
from sfao.lab.streams.suite import BENCHMARKS


def execute(
    config: RunConfig,
    folder: Path,
    *,
    data_root: Path | None = None,
    resume: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    report: Report = lambda update: None,
    stopping: Callable[[], bool] = lambda: False,
    skipping: Callable[[], None] = lambda: None,
    beginning: Callable[[Run], None] = lambda run: None,
    log: Sequence[str] = (),
) -> Record:
    """Run, or resume, the configured run in its folder, and return its record.

    A run that is finished already is not repeated: `skipping` is called, and its record returned. For any other,
    `beginning` is called with it before it starts.
    `log` names the loggers to log to, in the same folder; see :data:`sfao.lab.loggers.LOGGERS`.
    """
    loggers_wanted = parse_loggers(log)
    dataset = BENCHMARKS[config.benchmark].load(data_root)
    run = set_up(config, dataset, folder, checkpoint_seconds)
    with occupy(folder, config, resume=resume) as finished:
        if finished is None:
            beginning(run)
            with open_loggers(loggers_wanted, folder, config) as loggers:
                return run.execute(report, stopping, loggers)
        skipping()
        return reuse_record(folder, finished, config, describe_dataset(run.dataset))


def set_up(config: RunConfig, dataset: Dataset, folder: Path, checkpoint_seconds: float = CHECKPOINT_SECONDS) -> Run:
    """Return the run, ready to start: some settings are only wrong together with data, model and device."""
    try:
        return Run(config, dataset, folder, checkpoint_seconds)
    except (ValueError, RuntimeError, TypeError) as error:  # too many tasks for the classes, too large a model
        raise ConfigError(" ".join(str(error).split())[:300]) from error
