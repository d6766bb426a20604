"""Settings chosen on validation data, by a search or a grid. Optuna proposes the settings and stores the study."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any

import optuna
import yaml
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState

from sfao.lab.console import quote
from sfao.lab.methods import METHODS
from sfao.lab.methods.search_range import Choice, Range, SearchSpace
from sfao.lab.metrics import Spread, accuracy_when_learnt, spread
from sfao.lab.report.comparison import compare_records, flatten_settings
from sfao.lab.report.comparison_table import format_mean
from sfao.lab.report.tables import Column, Table, render_markdown
from sfao.lab.run.compare import leave_failure
from sfao.lab.run.config import RunConfig, configure
from sfao.lab.run.errors import ConfigError, FolderError, reraise_as
from sfao.lab.run.files import check_free, lock_folder, write_json, write_text
from sfao.lab.run.jobs import Event, Failure, Job, Runner, Watch
from sfao.lab.run.loop import set_up
from sfao.lab.run.pool import run_all
from sfao.lab.run.presets import RECOMMENDED
from sfao.lab.run.record import RECORD, Record, describe_dataset, load_record
from sfao.lab.safe_io import open_file, parse_json, parse_yaml
from sfao.lab.streams.seeding import make_generator, slice_dataset
from sfao.lab.streams.suite import BENCHMARKS

#: The files of a study: Optuna's journal, the trials for scripts and as a table, and the best settings for `--config`.
JOURNAL, TRIALS, TABLE, BEST = "journal.log", "trials.json", "trials.md", "best.yaml"
TUNING = "tuning"
#: Settings that define the problem: trials that differ in one of them can't be ranked.
PROBLEM = ("benchmark", "method", "seed", "scenario", "tasks", "order", "fraction", "validation", "evaluate")
#: Settings of the search that a run with the best settings doesn't take over.
NOT_CHOSEN = ("benchmark", "method", "seed", "validation", "evaluate")
#: Share of the training images to rank on: of data sets with fewer images than `SMALL_SET`, and of others.
SMALL_SET, SMALL_SHARE, USUAL_SHARE = 10_000, 0.2, 0.1
FORMS = "name=low:high, name=low:high:log or name=a,b"

# -- The search ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Search:
    """One method on one benchmark, with some settings fixed and others to be chosen from `space`."""

    benchmark: str
    method: str
    seeds: Sequence[int]
    fixed: Mapping[str, Any]
    space: SearchSpace = field(default_factory=dict)
    preset: str = RECOMMENDED
    file: Path | None = None

    def configure(self, chosen: Mapping[str, Any], seed: int | None = None) -> RunConfig:
        """Return the configuration of a run with the chosen settings; raise a ConfigError where they break a rule."""
        seed = self.seeds[0] if seed is None else seed
        settings = {**self.fixed, **chosen}
        return configure(self.benchmark, self.method, seed=seed, preset=self.preset, file=self.file, settings=settings)

    @property
    def share(self) -> float:
        """The share of the training images that is held out."""
        return float(self.fixed["validation"])

    @property
    def grid(self) -> list[dict[str, Any]]:
        """Every combination of the values in the space; the last setting varies fastest."""
        for name, where in self.space.items():
            if isinstance(where, Range):
                raise ConfigError(f"`--grid` needs lists of values, such as --search {name}=a,b, got {name}={where}")
        combinations = product(*(where.examples for where in self.space.values()))
        grid = [dict(zip(self.space, values, strict=True)) for values in combinations]
        for chosen in grid:
            self.configure(chosen)
        return grid


def make_search(
    benchmark: str,
    method: str,
    seeds: Sequence[int],
    settings: Mapping[str, Any],
    space: SearchSpace,
    *,
    share: float | None = None,
    preset: str = RECOMMENDED,
    file: Path | None = None,
) -> Search:
    """Return a search on validation data, in `space` or else over the method's own options that aren't fixed."""
    if settings.get("evaluate", "validation") != "validation":
        raise ConfigError(
            f"`evaluate` must be validation, as settings are never chosen on test data, got {settings['evaluate']!r}"
        )
    share = settings.get("validation") if share is None else share
    if share is None:
        plain = configure(benchmark, method, seed=seeds[0], preset=preset, file=file, settings=settings)
        is_small = BENCHMARKS[benchmark].count_training_examples() < SMALL_SET
        share = plain.validation or (SMALL_SHARE if is_small else USUAL_SHARE)
    fixed = {**settings, "evaluate": "validation", "validation": share}
    search = Search(benchmark, method, seeds, fixed, preset=preset, file=file)
    search.configure({})
    own = {f"options.{name}": where for name, where in METHODS[method].search_space.items()}
    space = space or {name: where for name, where in own.items() if name not in fixed}
    if not space:
        raise ConfigError(f"`--search` must name settings of {method}, such as lr=0.001:0.1:log, got none")
    return replace(search, space={name: _check_where(search, name, where) for name, where in space.items()})


def parse_search(text: str) -> tuple[str, Range | Choice]:
    """Split `options.capacity=50:400:log` or `options.target=loss,logit` into a setting and where to look."""
    name, _, where = (part.strip() for part in text.partition("="))
    low, *rest = where.split(":")
    if not (name and where) or len(rest) > 2 or rest[1:] not in ([], ["log"]):
        raise ConfigError(f"`--search` must be {FORMS}, got {quote(text)}")
    if not rest:
        return name, Choice(_parse_values(name, where))
    try:
        found = Range(float(low), float(rest[0]), log=len(rest) == 2)
    except ValueError:
        raise ConfigError(f"`--search {name}` must be {FORMS}, got {quote(where)}") from None
    if not (isfinite(found.low) and isfinite(found.high) and found.low < found.high):
        raise ConfigError(f"`--search {name}` must go from a lower to a higher number, got {quote(where)}")
    if found.log and found.low <= 0:
        raise ConfigError(f"`--search {name}` must start above 0 to be `log`, got {quote(where)}")
    return name, found


def _parse_values(name: str, text: str) -> tuple[Any, ...]:
    with reraise_as(ConfigError, f"`--search {name}`: "):
        values = [_parse_number(value) for value in parse_yaml(f"[{text}]")]
    if len(values) < 2 or any(isinstance(value, list | dict) or values.count(value) > 1 for value in values):
        raise ConfigError(f"`--search {name}` must list two or more different values, got {quote(text)}")
    return tuple(values)


def _parse_number(value: Any) -> Any:
    """Return `1e6` as a number, which is text in YAML."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _check_where(search: Search, name: str, where: Range | Choice) -> Range | Choice:
    """Refuse values that the setting can't have; return a range of integers if it takes no others."""
    if name in PROBLEM:
        raise ConfigError(f"`{name}` must be the same in all trials, or they can't be ranked; fix it with --set")
    if name in search.fixed:
        raise ConfigError(f"`{name}` must be fixed by --set or chosen by --search, got both")
    if isinstance(where, Range) and float(where.low).is_integer() and float(where.high).is_integer():
        try:
            search.configure({name: where.low + 0.5})
            is_whole = name.startswith("model.")  # sizes are checked only when the model is built
        except ConfigError:
            is_whole = True
        where = replace(where, low=int(where.low), high=int(where.high)) if is_whole else where
    for value in where.examples:
        search.configure({name: value})
    return where


# -- Trials ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """Settings that were tried, and the records of their runs, one per seed."""

    number: int
    settings: dict[str, Any]
    records: list[Record]
    #: Mean accuracy over the seeds; None unless all runs are done.
    score: float | None
    #: The reason why there is no score; empty if there is one.
    error: str = ""

    @property
    def spreads(self) -> dict[str, Spread | None]:
        """Accuracy, forgetting and the accuracy on each task just after it was learned, over the runs that are done."""
        done = [record for record in self.records if record.status == "done"]
        values = {
            "accuracy": [record.metrics["average_accuracy"] for record in done],
            "forgetting": [record.metrics["average_forgetting"] for record in done],
            "learning": [accuracy_when_learnt(record.accuracy_matrix) for record in done],
        }
        return {name: spread(found) if found else None for name, found in values.items()}

    def as_json(self) -> dict[str, Any]:
        spreads = {name: found and asdict(found) for name, found in self.spreads.items()}
        named = {name: getattr(self, name) for name in ("number", "settings", "score", "error")}
        return {**named, **spreads}


def find_best(trials: Sequence[Trial]) -> Trial | None:
    """Return the trial with the highest score, the first of equals; None if none has a score."""
    scored = [trial for trial in trials if trial.score is not None]
    return max(scored, key=lambda trial: trial.score or 0.0, default=None)


def _score(records: Sequence[Record], seeds: int) -> tuple[float | None, str]:
    """Return the mean accuracy if all runs are done, else None and the reason."""
    for record in records:
        if record.status != "done":
            return None, f"seed {record.seed} {record.status}: {record.error}"
    if len(records) < seeds:
        return None, f"{len(records)} of {seeds} runs ended"
    return fmean(record.metrics["average_accuracy"] for record in records), ""


# -- The study -------------------------------------------------------------------------------------------------------


def tune(
    search: Search,
    out: Path,
    *,
    trials: int,
    is_grid: bool = False,
    seed: int = 0,
    data_root: Path | None = None,
    workers: int | None = None,
    threads: int = 1,
    run: Runner = run_all,
    watch: Watch = lambda job, event: None,
    ended: Callable[[Trial], None] = lambda trial: None,
    stopping: Callable[[], bool] = lambda: False,
) -> list[Trial]:
    """Run trials until the study in `out` has as many as asked for (of a grid: all), and return them.

    Trials that were interrupted are resumed first. Settings, data and folder are checked before anything is written.
    `watch` gets the events of runs; `ended` gets the trials that had ended before and each one that ends.
    """
    grid = search.grid if is_grid else []
    _check_folder(out)
    check_free(out, TUNING)
    config, dataset = search.configure({}), BENCHMARKS[search.benchmark].load(data_root)
    set_up(config, dataset, out)  # some settings are only wrong together with the data
    data = describe_dataset(slice_dataset(dataset, config.fraction))
    out.mkdir(parents=True, exist_ok=True)
    with lock_folder(out, TUNING):
        _check_folder(out)
        study = _Study(search, out, grid, trials, seed, data, ended)
        run(
            study.resume(),
            workers=workers,
            threads=threads,
            data_root=data_root,
            resume=True,
            refill=study.begin,
            watch=study.record_endings(watch),
            stopping=stopping,
        )
        return study.trials


def _check_folder(out: Path) -> None:
    """Refuse a folder that holds anything but a study, and one with links: Optuna follows them when it writes."""
    held = list(out.iterdir()) if out.is_dir() else []
    for path in (out, *held):
        if path.is_symlink():
            raise FolderError(f"`out` must be a folder without links, got the link {path}")
    if out.exists() and not out.is_dir():
        raise FolderError(f"`out` must be a folder, got the file {out}")
    if not (out / JOURNAL).exists() and any(path.name[0] != "." for path in held):
        raise FolderError(f"`out` must be new or hold a study, but {out} holds other files")


def _open_study(out: Path, description: Mapping[str, Any]) -> optuna.Study:
    """Return the study in this folder, new or as it was left; refuse another search's."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    journal = out / JOURNAL
    (out / f"{JOURNAL}.lock").unlink(missing_ok=True)  # left by a process that was killed
    lines: list[bytes] = []
    if journal.exists():
        with open_file(journal, os.O_RDWR, "r+b") as file:
            held = file.read()
            file.truncate(held.rfind(b"\n") + 1)  # a line that a full disk cut short
            lines = held.split(b"\n")[:-1]
    try:
        for line in lines:
            parse_json(line)  # Optuna ignores a damaged last line until it has written another
        backend = JournalFileBackend(str(journal), lock_obj=JournalFileOpenLock(str(journal)))
        storage = optuna.storages.JournalStorage(backend)
        if storage.get_all_studies():  # `load_if_exists` writes into the journal even if the study is another
            study = optuna.load_study(storage=storage, study_name="tune")
        else:
            study = optuna.create_study(storage=storage, study_name="tune", direction="maximize")
        if not study.trials and "search" not in study.user_attrs:
            study.set_user_attr("search", dict(description))
        known = dict(study.user_attrs["search"])
    except Exception as error:  # Optuna replays whatever the journal holds
        raise FolderError(f"{journal} must be the journal of a study, but it is damaged: {quote(error)}") from error
    for name, here in description.items():
        if known.get(name) != here:
            difference = f"`{name}` is {known.get(name)} there and {here} here"
            raise FolderError(f"`out` must be new or hold this study, but {out} holds another: {difference}")
    return study


class _Study:
    """Optuna's study and the runs under way."""

    def __init__(
        self,
        search: Search,
        out: Path,
        grid: Sequence[Mapping[str, Any]],
        trials: int,
        seed: int,
        data: dict[str, Any],
        ended: Callable[[Trial], None],
    ) -> None:
        self.search, self.out, self.count, self.seed = search, out, trials, seed
        self.is_grid, self.data, self.ended = bool(grid), data, ended
        self.distributions = {name: _distribution(where) for name, where in search.space.items()}
        description = {
            **flatten_settings(search.configure({}).model_dump()),
            **{name: str(where) for name, where in search.space.items()},
            "grid": self.is_grid,
            "seeds": list(search.seeds),
            "seed": seed,
            "data": data,
        }
        self.study = _open_study(out, description)
        for chosen in grid:
            self.study.enqueue_trial(dict(chosen), skip_if_exists=True)
        #: {folder of a run: number of its trial}
        self._trial_of: dict[Path, int] = {}
        #: {number of a trial under way: records of its runs that ended}
        self._records: dict[int, list[Record]] = {}

    @property
    def trials(self) -> list[Trial]:
        return [self._read(trial) for trial in self.study.trials if trial.state != TrialState.WAITING]

    def resume(self) -> list[Job]:
        """Report the trials that ended before, and return the jobs of those that were under way."""
        jobs: list[Job] = []
        for trial in self.study.trials:
            if trial.state == TrialState.RUNNING:
                jobs += self._plan(trial.number, trial.params)
            elif trial.state != TrialState.WAITING:
                self.ended(self._read(trial))
        for job in jobs:
            check_free(job.folder)  # a worker that lost its parent may still be saving its state
        return jobs

    def begin(self) -> list[Job]:
        """Begin the next trial and return its jobs; none if there are as many trials as asked for."""
        while trial := self._ask():
            try:
                return self._plan(trial.number, trial.params)
            except ConfigError as error:  # settings that are only wrong together
                trial.set_user_attr("error", str(error))
                self._end(trial.number, None)
        return []

    def _ask(self) -> optuna.Trial | None:
        trials = self.study.trials
        begun = sum(trial.state != TrialState.WAITING for trial in trials)
        if begun >= (len(trials) if self.is_grid else self.count):
            return None
        # A seed per trial: an interrupted study proposes what it would have proposed without the interrupt.
        source = make_generator(self.seed, f"trial {begun}").initial_seed() % 2**32
        self.study.sampler = optuna.samplers.TPESampler(seed=source)
        return self.study.ask(self.distributions)

    def _plan(self, number: int, params: Mapping[str, Any]) -> list[Job]:
        chosen = self._settings(params)
        jobs = [Job(self.search.configure(chosen, seed), self._folder(number, seed)) for seed in self.search.seeds]
        self._trial_of |= {job.folder: number for job in jobs}
        self._records[number] = []
        return jobs

    def _folder(self, number: int, seed: int) -> Path:
        return self.out / f"trial-{number}-{seed}"

    def _settings(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a trial tries: numbers from a range have four digits, which are easier to read."""
        if params.keys() != self.search.space.keys():
            raise FolderError(f"{self.out / JOURNAL} must have trials of this search, got {quote(dict(params))}")
        chosen = {name: params[name] for name in self.search.space}
        for name, where in self.search.space.items():
            if isinstance(where, Range) and isinstance(chosen[name], float):
                chosen[name] = min(max(float(f"{chosen[name]:.4g}"), where.low), where.high)
        return chosen

    def record_endings(self, watch: Watch) -> Watch:
        """Return a function that passes events on, and ends a trial with its last run."""

        def hear(job: Job, event: Event) -> None:
            watch(job, event)
            if isinstance(event, Failure):
                event = leave_failure(job, event, self.data)
            if isinstance(event, Record):
                number = self._trial_of[job.folder]
                self._records[number].append(event)
                if len(self._records[number]) == len(self.search.seeds):
                    self._end(number, _score(self._records[number], len(self.search.seeds))[0])

        return hear

    def _end(self, number: int, score: float | None) -> None:
        self.study.tell(number, score, state=TrialState.FAIL if score is None else TrialState.COMPLETE)
        self.ended(self._read(self.study.trials[number]))

    def _read(self, trial: FrozenTrial) -> Trial:
        """Return a trial with the records of its runs."""
        folders = [self._folder(trial.number, seed) for seed in self.search.seeds]
        settings = self._settings(trial.params)
        with reraise_as(FolderError):
            records = [load_record(folder) for folder in folders if (folder / RECORD).exists()]
        for record in records:
            if record.config != self.search.configure(settings, record.seed).model_dump():
                raise FolderError(f"{self.out / JOURNAL} must have the settings of the runs, got others")
        score, error = _score(records, len(self.search.seeds))
        return Trial(trial.number, settings, records, score, str(trial.user_attrs.get("error", error)))


def _distribution(where: Range | Choice) -> BaseDistribution:
    if isinstance(where, Choice):
        return CategoricalDistribution(where.values)
    if isinstance(where.low, int) and isinstance(where.high, int):
        return IntDistribution(where.low, where.high, log=where.log)
    return FloatDistribution(where.low, where.high, log=where.log)


# -- Results ---------------------------------------------------------------------------------------------------------


def make_table(trials: Sequence[Trial], search: Search) -> Table[Trial]:
    """Return one row per trial: its settings and what they reach on validation data."""
    best = find_best(trials)
    groups = compare_records(record for trial in trials for record in trial.records).groups
    warnings = dict.fromkeys(text for record in (best.records if best else ()) for text in record.warnings)

    def setting_column(name: str) -> Column[Trial]:
        return Column(name.removeprefix("options."), lambda row: _write_cell(row.settings[name]), align="right")

    def spread_column(title: str, name: str, is_best: Callable[[Trial], bool] = lambda row: False) -> Column[Trial]:
        return Column(title, lambda row: format_mean(row.spreads[name]), is_best, align="right")

    return Table(
        f"{search.method} on {search.benchmark}, seeds {', '.join(map(str, search.seeds))}, on validation images",
        [
            Column("trial", lambda row: str(row.number), align="right"),
            *map(setting_column, search.space),
            spread_column("accuracy", "accuracy", lambda row: row is best),
            spread_column("forgetting", "forgetting"),
            spread_column("learned", "learning"),
            Column("", lambda row: "best" if row is best else row.error[:60], wraps=True),
        ],
        trials,
        [
            f"Measured on {100 * search.share:.4g} % of the training images, held out of training; test images play "
            "no part. learned: accuracy on each task just after it was learned.",
            *(group.caveat for group in groups[:1] if group.caveat),
            *(f"warning (the best): {text}" for text in warnings),
        ],
    )


def _write_cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def write_results(search: Search, trials: Sequence[Trial], out: Path) -> dict[str, Any]:
    """Write the trials and the best settings; return what is written as JSON."""
    best = find_best(trials)
    summary = {
        "benchmark": search.benchmark,
        "method": search.method,
        "seeds": list(search.seeds),
        "search": {name: str(where) for name, where in search.space.items()},
        "trials": [trial.as_json() for trial in trials],
        "evaluate": "validation",
        "validation": search.share,
        "best": best and best.as_json(),
    }
    write_json(out / TRIALS, summary)
    write_text(out / TABLE, render_markdown(make_table(trials, search)) + "\n")
    (out / BEST).unlink(missing_ok=True)
    if best:
        values = search.configure(best.settings).model_dump()
        chosen = {name: value for name, value in values.items() if name not in NOT_CHOSEN}
        head = (
            f"# The best of {len(trials)} trials: average accuracy {best.score:.4f} on validation images.\n"
            f"# sfao run {search.benchmark} --method {search.method} --config {BEST}\n"
        )
        write_text(out / BEST, head + yaml.safe_dump(chosen, sort_keys=False))
    return summary
