"""Jobs: the runs of a comparison, what is reported of them, and the signature of what runs them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sfao.checks import check_choice
from sfao.lab.console import quote
from sfao.lab.methods import METHODS
from sfao.lab.names import name_folder
from sfao.lab.run.config import RunConfig, configure
from sfao.lab.run.errors import ConfigError, reraise_as
from sfao.lab.run.loop import CHECKPOINT_SECONDS
from sfao.lab.run.presets import RECOMMENDED
from sfao.lab.run.progress import Update
from sfao.lab.run.record import Record

#: The largest count of seeds; a larger number was probably meant as a single seed.
MOST_SEEDS = 1000
#: More than the largest seed has.
MOST_DIGITS = 30


@dataclass(frozen=True)
class Job:
    """A run to execute: its settings, its folder, and how often it saves its state there."""

    config: RunConfig
    folder: Path
    checkpoint_seconds: float = CHECKPOINT_SECONDS


# -- Events of a job; the last is its record or its failure --------------------------------------------------


@dataclass(frozen=True)
class Begun:
    """A worker has taken the run."""


@dataclass(frozen=True)
class Skipped:
    """The run was finished already."""

    record: Record


@dataclass(frozen=True)
class Lost:
    """The worker or the node of the run is lost, and the run began again for the `attempt`-th time of `most`."""

    reason: str
    attempt: int
    most: int


@dataclass(frozen=True)
class Failure:
    """A run that ended in an exception: its message and its traceback."""

    error: str
    traceback: str = ""


@dataclass(frozen=True)
class Stopped:
    """The run was asked to stop, and its state is saved."""


Event = Begun | Update | Skipped | Lost | Record | Failure
Watch = Callable[[Job, Event], None]
Refill = Callable[[], Sequence[Job]]


class Runner(Protocol):
    """Runs jobs, at most `workers` at a time, each on `threads` threads, and returns how each ended.

    Each run logs to the loggers that `log` names. When a worker has nothing to do, `refill` is called for more jobs;
    none mean that there will be none. A run that fails, or whose process dies, returns a Failure in its place, and the
    others continue. When `stopping` returns True, the runs save their state and Interrupted is raised.
    """

    def __call__(
        self,
        jobs: Sequence[Job],
        *,
        workers: int | None = None,
        threads: int = 1,
        data_root: Path | None = None,
        resume: bool = False,
        watch: Watch = lambda job, event: None,
        stopping: Callable[[], bool] = lambda: False,
        refill: Refill = lambda: (),
        log: Sequence[str] = (),
    ) -> Sequence[Record | Failure]: ...


# -- Planning ------------------------------------------------------------------------------------------------


def plan(
    benchmark: str,
    methods: Sequence[str],
    seeds: Sequence[int],
    out: Path,
    *,
    preset: str = RECOMMENDED,
    file: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> list[Job]:
    """Return one job per method and seed, in `out/METHOD-SEED`; raise a ConfigError for the first wrong setting.

    `settings` are dotted names; one that starts with a method and a colon applies to that method alone.
    """
    _check_list("methods", methods)
    _check_list("seeds", seeds)
    for method in methods:
        with reraise_as(ConfigError):
            METHODS.load("methods", method)
    shared, own = _split_by_method(settings or {}, methods)
    jobs = []
    for method in methods:
        for seed in seeds:
            with reraise_as(ConfigError, f"{method}: "):
                config = configure(
                    benchmark, method, seed=seed, preset=preset, file=file, settings={**shared, **own[method]}
                )
            jobs.append(Job(config, out / f"{name_folder(method)}-{seed}", checkpoint_seconds))
    return jobs


def parse_methods(text: str) -> list[str]:
    """Split `sgd,ewc` into names."""
    return [name.strip() for name in text.split(",") if name.strip()]


def parse_seeds(text: str) -> list[int]:
    """Return the seeds: `5` means 0 to 4, `3,7` these two, and `3,` this one."""
    parts = [part.strip() for part in text.split(",")]
    numbers = [int(part) for part in parts if part.isdecimal() and len(part) < MOST_DIGITS]
    given = [part for part in parts if part]
    if not numbers or len(numbers) != len(given) or (len(parts) == 1 and numbers == [0]):
        raise ConfigError(f"`seeds` must be how many, such as 5, or which, such as 3,7, got {quote(text)}")
    if len(parts) > 1:
        _check_list("seeds", numbers)
        return numbers
    if numbers[0] > MOST_SEEDS:
        raise ConfigError(
            f"`seeds` must be at most {MOST_SEEDS} as a count, got {numbers[0]}; that seed alone is {numbers[0]},"
        )
    return list(range(numbers[0]))


def _split_by_method(
    settings: Mapping[str, Any], methods: Sequence[str]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Split settings into those for all methods and {method: those for it alone}."""
    shared: dict[str, Any] = {}
    own: dict[str, dict[str, Any]] = {method: {} for method in methods}
    for text, value in settings.items():
        method, colon, name = text.rpartition(":")
        if colon:
            with reraise_as(ConfigError):
                check_choice(f"{text}: the method", method, tuple(methods))
            own[method][name] = value
        else:
            shared[name] = value
    return shared, own


def _check_list(name: str, values: Sequence[object]) -> None:
    if not values:
        raise ConfigError(f"`{name}` must name at least one, got none")
    for value in values:
        if values.count(value) > 1:
            raise ConfigError(f"`{name}` must name each one once, got {value!r} twice")
