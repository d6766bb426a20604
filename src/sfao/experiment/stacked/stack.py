"""A stack: runs that are at the same step of the same task, and make their next steps together."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isfinite

import torch
from torch import Tensor

from sfao.experiment.epoch_batches import make_pass_generator, name_epoch
from sfao.experiment.errors import Interrupted, describe_broken_loss, is_out_of_memory
from sfao.experiment.pool import Event, Watch
from sfao.experiment.progress import Update, add_up_decisions
from sfao.experiment.record import Record
from sfao.experiment.run import CHECKPOINT_SHARE, TELEMETRY_EVERY
from sfao.experiment.stacked.evaluation import evaluate_stack
from sfao.experiment.stacked.member import Member
from sfao.experiment.worker import UPDATE_SECONDS, Failure, Job
from sfao.methods.stacked import STACKED, StackReport
from sfao.streams.labelled_images import draw_order
from sfao.streams.stacked_images import StackedImages


class WatchFailed(Exception):  # noqa: N818, it names what happened
    """Whoever watches has raised an error, a terminal that is gone say: no run is to blame."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def tell_apart(watch: Watch) -> Watch:
    """Return a watch whose errors are known from those of runs."""

    def tell(job: Job, event: Event) -> None:
        try:
            watch(job, event)
        except Exception as error:
            raise WatchFailed(error) from error

    return tell


class Stack:
    """Learns one task, or what is left of it, with all its members; those that come to their end say so to `watch`.

    Members change only where the stack hands over to them: a stack that fails, out of memory say, has lost the steps
    since then and nothing else. When `stopping` returns True, it hands over and raises Interrupted.
    """

    def __init__(self, members: Sequence[Member], watch: Watch, stopping: Callable[[], bool]) -> None:
        self.members, self._watch, self._stopping = members, watch, stopping
        first = members[0]
        self.device, self.config, at = first.device, first.config, first.position
        self.task, self.epoch, self.batch, self.steps = at.task, at.epoch, at.batch, at.steps
        self._tasks = [member.stream.tasks[self.task] for member in members]
        self._first_step = at.steps
        self._clock = _Clock()
        self._told = self._saved = time.monotonic()
        self._interval = self._asked = first.checkpoint_seconds

    def learn(self) -> None:
        """Learn to the end of the task; stop earlier where a run diverges, for the others to go on without it."""
        for member in self.members:
            member.forget_lines()
            if self.epoch == 0 and self.batch == 0:
                member.method.begin_task(self.task, member.stream.tasks[self.task])
        self._method = STACKED[self.config.method]([member.method for member in self.members])
        if not self.members[0].position.initial and not self._evaluate_first():
            return
        while self.epoch < self.config.epochs:
            if not self._learn_epoch():
                return
        self._end_task()

    def _evaluate_first(self) -> bool:
        found = self._evaluate()
        for member, row in zip(self.members, found, strict=True):
            member.position.initial = row if isinstance(row, list) else []
        return self._all_go_on({run: row for run, row in enumerate(found) if isinstance(row, str)})

    def _evaluate(self) -> list[list[float] | str]:
        streams = [member.stream for member in self.members]
        return evaluate_stack(self._method.models, streams, self.config.evaluate, self.device)

    # -- Steps -----------------------------------------------------------------------------------------

    def _learn_epoch(self) -> bool:
        """Make the steps of an epoch that are left; tell whether all runs go on."""
        images = StackedImages([task.train for task in self._tasks], self.device)
        label = name_epoch(self.task, self.epoch)
        generators = [make_pass_generator(member.config.seed, label) for member in self.members]
        orders = torch.stack([draw_order(len(images), generator) for generator in generators])
        losses = None
        with self._clock.stepping():
            for inputs, targets in images.batches(orders, self.config.batch_size, self.batch):
                losses = self._method.step(inputs, targets, self._tasks[0].outputs)
                self.steps, self.batch = self.steps + 1, self.batch + 1
                if self.steps % TELEMETRY_EVERY == 0 and not self._tell(losses):
                    return False
                self._save_where_due()
            if losses is not None and not self._all_go_on(self._find_errors(self._method.report(losses))):
                return False
        self.epoch, self.batch = self.epoch + 1, 0
        return True

    def _tell(self, losses: Tensor) -> bool:
        """Note the step just made, and report it now and then; tell whether all runs go on."""
        reports = self._method.report(losses)
        if not self._all_go_on(self._find_errors(reports)):
            return False
        for member, report in zip(self.members, reports, strict=True):
            member.note_step(self.steps, self.epoch, report)
        now = time.monotonic()
        if now - self._told >= UPDATE_SECONDS:
            rate = (self.steps - self._first_step) / max(self._clock.seconds_stepping, 1e-9)
            self._told = now
            try:
                for member, report in zip(self.members, reports, strict=True):
                    self._watch(member.job, self._make_update(member, report, rate))
            except WatchFailed:
                self._hand_over()
                raise
        return True

    def _make_update(self, member: Member, report: StackReport, rate: float) -> Update:
        at = (self.task, len(member.stream), self.epoch, self.config.epochs, self.steps, member.total_steps)
        return Update(*at, rate, report.loss, add_up_decisions(report.decisions))

    def _find_errors(self, reports: Sequence[StackReport]) -> dict[int, str]:
        """Return what has ended runs that cannot go on, by their number."""
        found = {}
        for run, report in enumerate(reports):
            if report.error:
                found[run] = report.error
                self.members[run].steps_made = self._first_step + report.steps_made
            elif not isfinite(report.loss):
                found[run] = describe_broken_loss(report.loss, self.steps, self.task)
        return found

    # -- Handing over ----------------------------------------------------------------------------------

    def _hand_over(self) -> None:
        """Bring all members to where the stack is."""
        self._method.hand_over()
        seconds, stepping = self._clock.take()
        runs = len(self.members)
        for member in self.members:
            member.arrive(self.epoch, self.batch, self.steps, runs)
            member.spend(seconds / runs, stepping / runs)

    def _all_go_on(self, errors: dict[int, str]) -> bool:
        """Tell whether there are no errors; else hand over, and end the runs that have one."""
        if errors:
            self._hand_over()
        for run, error in errors.items():
            member = self.members[run]
            self._watch(member.job, member.diverge(error))
        return not errors

    def _save_where_due(self) -> None:
        """Save a checkpoint of every run from time to time; where all are to stop, leave that to the caller."""
        if self._stopping():
            self._hand_over()
            raise Interrupted
        if time.monotonic() - self._saved > self._interval:
            self._hand_over()
            self._save()

    def _save(self) -> None:
        began = time.monotonic()
        for member in self.members:
            if not member.is_ended:
                member.save()
        self._saved = time.monotonic()
        self._interval = max(self._asked, (self._saved - began) / CHECKPOINT_SHARE)

    def _end_task(self) -> None:
        """Evaluate, and let each run store what it needs of the task; end those that have learnt their last."""
        self._hand_over()
        found = self._evaluate()
        del self._method  # its memory is needed now
        seconds, _ = self._clock.take()
        for member in self.members:
            member.spend(seconds / len(self.members), 0.0)
        for member, row in zip(self.members, found, strict=True):
            if self._stopping():
                raise Interrupted
            ending: Record | Failure | None
            try:
                ending = member.diverge(row) if isinstance(row, str) else member.end_task(row)
            except Exception as error:  # of this run alone
                if is_out_of_memory(error):
                    raise
                ending = member.fail(error)
            if ending is not None:
                self._watch(member.job, ending)
        if time.monotonic() - self._saved > self._interval:
            self._save()


class _Clock:
    """The time that a stack has taken, and how much of it for steps, since it was last asked."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._step_began: float | None = None
        self._stepped = 0.0
        #: The time for steps since the start.
        self._stepped_before = 0.0

    @contextmanager
    def stepping(self) -> Iterator[None]:
        self._step_began = time.monotonic()
        try:
            yield
        finally:
            self._stop()

    def _stop(self) -> None:
        if self._step_began is not None:
            self._stepped += time.monotonic() - self._step_began
            self._step_began = None

    @property
    def seconds_stepping(self) -> float:
        now = 0.0 if self._step_began is None else time.monotonic() - self._step_began
        return self._stepped_before + self._stepped + now

    def take(self) -> tuple[float, float]:
        """Return the seconds, and those for steps, since this was called last."""
        goes_on = self._step_began is not None
        self._stop()
        now = time.monotonic()
        found = now - self._since, self._stepped
        self._since, self._stepped_before, self._stepped = now, self._stepped_before + self._stepped, 0.0
        self._step_began = now if goes_on else None
        return found
