"""A study: trial after trial until there are as many as asked for, their runs in the pool of workers."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from sfao.lab.methods.search_range import SearchSpace
from sfao.lab.run.compare import leave_failure
from sfao.lab.run.errors import ConfigError, FolderError, reraise_as
from sfao.lab.run.execute import set_up
from sfao.lab.run.folder import clear_finished, find_difference
from sfao.lab.run.lock import check_free, lock_folder
from sfao.lab.run.pool import Event, Watch, run_all
from sfao.lab.run.record import RECORD, Record, describe_dataset, load_record
from sfao.lab.run.runner import RefilledRunner
from sfao.lab.run.worker import Failure, Job
from sfao.lab.streams.slicing import slice_dataset
from sfao.lab.streams.suite import BENCHMARKS
from sfao.lab.tune.candidate import Candidate, score_records
from sfao.lab.tune.proposal import propose
from sfao.lab.tune.search import Search
from sfao.lab.tune.study import (
    JOURNAL,
    TUNING,
    add_trial,
    check_study,
    check_trials,
    describe_study,
    end_trial,
    open_study,
)

#: Called with every candidate that is known at the start, and with each one that ends.
Ended = Callable[[Candidate], None]


def tune(
    search: Search,
    space: SearchSpace,
    out: Path,
    *,
    trials: int,
    seed: int = 0,
    data_root: Path | None = None,
    workers: int | None = None,
    threads: int = 1,
    run: RefilledRunner = run_all,
    watch: Watch = lambda job, event: None,
    ended: Ended = lambda candidate: None,
    stopping: Callable[[], bool] = lambda: False,
) -> list[Candidate]:
    """Do trials until the study in `out` has so many, and return all of them in their order.

    Trials that were under way when the study was interrupted go on first. One whose runs fail or diverge is recorded
    as failed. Settings, data and folder are checked before anything runs or is written. `run` may do the jobs in
    another way than a pool of processes.
    """
    check_free(out, TUNING)
    data = _rehearse(search, out, data_root)
    description = describe_study(search, space, seed, data)
    check_study(out, description)
    out.mkdir(parents=True, exist_ok=True)
    with lock_folder(out, TUNING):
        check_study(out, description)
        held = open_study(out, description)
        check_trials(held, space, out)
        study = _Study(held, search, space, seed, out, data, ended)
        run(
            study.resume(),
            workers=workers,
            threads=threads,
            data_root=data_root,
            resume=True,
            watch=study.overhear(watch),
            stopping=stopping,
            refill=lambda: study.begin(trials),
        )
        return study.candidates


def _rehearse(search: Search, out: Path, data_root: Path | None) -> dict[str, Any]:
    """Set up one run and discard it: some settings are only wrong together with data; return what the data are."""
    config = search.configure({})
    dataset = BENCHMARKS[search.benchmark].load(data_root)
    set_up(config, dataset, out)
    return describe_dataset(slice_dataset(dataset, config.fraction))


class _Study:
    """The trials of a study, and the runs that are under way."""

    def __init__(
        self,
        study: optuna.Study,
        search: Search,
        space: SearchSpace,
        seed: int,
        out: Path,
        data: dict[str, Any],
        ended: Ended,
    ) -> None:
        self.study, self.search, self.space, self.seed = study, search, space, seed
        self.out, self.data, self.ended = out, data, ended
        #: {folder of a run: number of its trial}
        self._trial_of: dict[Path, int] = {}
        #: {number of a trial that is under way: records of the runs that have ended}
        self._records: dict[int, list[Record]] = {}

    @property
    def candidates(self) -> list[Candidate]:
        return [self._read_candidate(trial) for trial in self.study.trials]

    def resume(self) -> list[Job]:
        """Tell the trials that have ended, and return the jobs of those that were under way."""
        jobs: list[Job] = []
        for trial in self.study.trials:
            if trial.state == TrialState.RUNNING:
                jobs += self._plan(trial.number, trial.params)
            else:
                self.ended(self._read_candidate(trial))
                for folder in self._list_folders(trial.number):
                    clear_finished(folder)
        for job in jobs:
            check_free(job.folder)  # a process that lost its parent may still be saving its state
        return jobs

    def begin(self, trials: int) -> list[Job]:
        """Begin the next trial and return its jobs; none when there are as many trials as asked for."""
        while len(known := self.study.trials) < trials:
            chosen = propose(known, self.space, self.seed)
            try:
                self.search.configure(chosen)
            except ConfigError as error:  # settings that are wrong together, though not one by one
                number = add_trial(self.study, self.space, chosen, str(error))
                self.ended(self._read_candidate(self.study.trials[number]))
                continue
            return self._plan(add_trial(self.study, self.space, chosen), chosen)
        return []

    def _list_folders(self, number: int) -> list[Path]:
        """Return the folders of the runs of a trial, in the order of their seeds."""
        return [self.out / f"trial-{number}-{seed}" for seed in self.search.seeds]

    def _plan(self, number: int, chosen: dict[str, Any]) -> list[Job]:
        folders = zip(self.search.seeds, self._list_folders(number), strict=True)
        jobs = [Job(self.search.configure(chosen, seed), folder) for seed, folder in folders]
        self._trial_of |= {job.folder: number for job in jobs}
        self._records[number] = []
        return jobs

    def overhear(self, watch: Watch) -> Watch:
        """Return a function that passes events on, and ends a trial when its last run has ended."""

        def hear(job: Job, event: Event) -> None:
            watch(job, event)
            if isinstance(event, Failure):
                self._take(job, leave_failure(job, event, self.data))
            elif isinstance(event, Record):
                self._take(job, event)

        return hear

    def _take(self, job: Job, record: Record) -> None:
        number = self._trial_of[job.folder]
        self._records[number].append(record)
        if len(self._records[number]) == len(self.search.seeds):
            records = sorted(self._records.pop(number), key=lambda record: record.seed)
            score, error = score_records(records, len(self.search.seeds))
            end_trial(self.study, number, score)
            self.ended(Candidate(number, self.study.trials[number].params, records, score, error))

    def _read_candidate(self, trial: FrozenTrial) -> Candidate:
        """Return a trial with the records that its runs left, as far as they are still there."""
        folders = self._list_folders(trial.number)
        with reraise_as(FolderError):
            records = [load_record(folder) for folder in folders if (folder / RECORD).exists()]
        self._check_journal(trial, records)
        if trial.state == TrialState.COMPLETE:
            return Candidate(trial.number, trial.params, records, trial.value)
        error = trial.user_attrs.get("error") or score_records(records, len(folders))[1]
        return Candidate(trial.number, trial.params, records, None, error)

    def _check_journal(self, trial: FrozenTrial, records: Sequence[Record]) -> None:
        """Refuse a journal that tells other settings or another score of a trial than the records of its runs."""
        fault = ""
        for record in records:
            with reraise_as(FolderError, f"{self.out / JOURNAL} must tell the settings of trial {trial.number}: "):
                difference = find_difference(record.config, self.search.configure(trial.params, record.seed))
            if difference:
                fault = f"{difference}, in its record and in the journal"
        if trial.state != TrialState.RUNNING and len(records) == len(self.search.seeds):
            told = trial.value if trial.state == TrialState.COMPLETE else None
            score, _ = score_records(records, len(records))
            if told != score:
                fault = f"its score is {told}, and {score} in its records"
        if fault:
            raise FolderError(
                f"{self.out / JOURNAL} must tell what the records of trial {trial.number} tell, but {fault}"
            )
