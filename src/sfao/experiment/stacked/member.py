"""A run in a stack: model, stream, method, folder and record of its own, steps made together with others."""

import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack

from sfao.data.dataset import Dataset
from sfao.experiment.folder import occupy, reuse_record
from sfao.experiment.randomness import seed_generators
from sfao.experiment.record import Record, describe_dataset
from sfao.experiment.run import Run
from sfao.experiment.run_log import RunLog, describe_step
from sfao.experiment.worker import Failure, Job, summarise_error
from sfao.methods.stacked import StackReport


class Member(Run):
    """A run whose steps a stack makes. Between them it is as a run on its own would be: its checkpoints serve both."""

    may_turn_channels = False  # stacks of weights are contiguous

    def __init__(self, job: Job, dataset: Dataset) -> None:
        super().__init__(job.config, dataset, job.folder, job.checkpoint_seconds)
        self.job = job
        self._held = ExitStack()
        self._lines: list[dict[str, object]] = []
        #: The steps of a run that came to its end before the stack noticed.
        self.steps_made: int | None = None
        self.is_ended = False

    def begin(self, resume: bool) -> Record | None:
        """Lock the folder and go to the checkpoint in it, if there is one; return the record of a finished run."""
        finished = self._held.enter_context(occupy(self.folder, self.config, resume=resume))
        if finished is not None:
            try:
                return reuse_record(self.folder, finished, self.config, describe_dataset(self.dataset))
            finally:
                self.release()
        try:
            # Models that draw random numbers are not stacked: the generators are as the seed leaves them.
            with seed_generators(self.config.seed, self.device) as self._generators:
                self._resume()
            self._log = RunLog(self.folder, self.position, ())
        except BaseException:
            self.release()
            raise
        return None

    def release(self) -> None:
        """Let go of the folder: the run has come to its end, or is left as it is."""
        self.is_ended = True
        self._held.close()

    def describe_place(self) -> tuple[object, ...]:
        """Return what runs must have in common to make their next steps together, beside their settings."""
        at = self.position
        on = self.config.evaluate
        sizes = [
            (len(task.train), len(task.test if on == "test" or task.validation is None else task.validation))
            for task in self.stream
        ]
        outputs = [(task.outputs.start, task.outputs.stop) for task in self.stream]
        return (at.task, at.epoch, at.batch, at.steps, bool(at.initial), str(sizes), str(outputs))

    # -- What the stack tells --------------------------------------------------------------------------

    def note_step(self, steps: int, epoch: int, report: StackReport) -> None:
        """Keep a line of steps.jsonl, which is written once the stack has handed over."""
        at = self.position
        line = describe_step(at, report.loss, report.decisions, report.looks)
        self._lines.append({**line, "step": steps, "epoch": epoch})

    def forget_lines(self) -> None:
        """Drop the lines of steps that the stack lost."""
        self._lines = []

    def arrive(self, epoch: int, batch: int, steps: int, runs: int) -> None:
        """Be where the stack has come to, one of so many runs: method and model are there already."""
        at = self.position
        at.epoch, at.batch, at.steps = epoch, batch, steps if self.steps_made is None else self.steps_made
        at.stacked = max(at.stacked, runs)
        self._log.add_lines(self._lines)
        self._lines = []

    def spend(self, seconds: float, stepping: float) -> None:
        """Add this run's share of the time of the stack."""
        self.position.seconds += seconds
        self.position.stepping += stepping

    # -- Ends ------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Save a checkpoint: of a run on its own, which may go on in a stack or without one."""
        self._started = time.monotonic()  # time is told by `spend`
        with seed_generators(self.config.seed, self.device) as self._generators:
            self._save()

    def end_task(self, row: list[float]) -> Record | None:
        """Store what later tasks need of the one just learnt, with these accuracies after it."""
        began = time.monotonic()
        self._end_task(row)
        self.spend(time.monotonic() - began, 0.0)
        return self._close(self._end) if self.position.task == len(self.stream) else None

    def diverge(self, error: str) -> Record:
        """Return the record of a run that has diverged, saved."""
        return self._close(lambda: self._finish("diverged", self._decisions_in_the_end(), error))

    def fail(self, error: Exception) -> Failure:
        """Return what has ended the run, for whoever watches."""
        self.release()
        return Failure(summarise_error(error), "".join(traceback.format_exception(error)))

    def _close(self, finish: Callable[[], Record]) -> Record:
        self._started = time.monotonic()
        record = finish()
        self.release()
        return record
