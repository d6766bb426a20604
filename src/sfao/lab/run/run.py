"""One run: learn a stream task after task, evaluate after each, resume wherever it was stopped."""

import time
from collections.abc import Callable, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from torch import Tensor

from sfao.decision import NonFiniteGradient
from sfao.lab.data.dataset import Dataset
from sfao.lab.loggers import Logger
from sfao.lab.methods import METHODS
from sfao.lab.metrics import summary
from sfao.lab.models import MODELS
from sfao.lab.run.checkpoint import load_checkpoint, remove_checkpoints, save_checkpoint
from sfao.lab.run.config import RunConfig
from sfao.lab.run.determinism import deterministic_kernels
from sfao.lab.run.device import place_model, usable_device
from sfao.lab.run.epoch_batches import epoch_batches, steps_per_epoch
from sfao.lab.run.errors import Diverged, Interrupted, SharpForgetting
from sfao.lab.run.evaluation import evaluate
from sfao.lab.run.folder import check_label
from sfao.lab.run.guard import make_guard
from sfao.lab.run.make_model import make_model
from sfao.lab.run.position import Position
from sfao.lab.run.progress import Report, Update, add_up_decisions
from sfao.lab.run.randomness import seed_generators
from sfao.lab.run.record import Record, describe_dataset, timestamp, versions, weights_digest
from sfao.lab.run.run_log import RunLog
from sfao.lab.run.snapshot import restore_snapshot, take_snapshot
from sfao.lab.streams.seeding import make_generator, slice_dataset
from sfao.lab.streams.stream import Task
from sfao.lab.streams.suite import BENCHMARKS

TELEMETRY_EVERY = 20
CHECKPOINT_SECONDS = 20.0
#: The largest share of the run time that saving may take.
CHECKPOINT_SHARE = 0.1
#: A method that holds more bytes is not kept in memory for a guard to go back to.
POINT_BYTES = 2**30


class Run:
    """One configured run on a loaded dataset, in its own folder."""

    def __init__(
        self, config: RunConfig, dataset: Dataset, folder: Path, checkpoint_seconds: float = CHECKPOINT_SECONDS
    ) -> None:
        self.config = config
        self.folder = folder
        self.checkpoint_seconds = checkpoint_seconds
        self.dataset = slice_dataset(dataset, config.fraction)
        self.device = usable_device(config.device, config.deterministic)
        self.stream = BENCHMARKS[config.benchmark].make_stream(
            self.dataset,
            tasks=config.tasks,
            scenario=config.scenario,
            seed=config.seed,
            order=config.order,
            validation=config.validation,
        )
        made = make_model(config.model, self.stream, config.seed)
        self.model = place_model(made, self.device, is_own=config.model.name in MODELS)
        self.method = METHODS[config.method](self.model, config.training, config.method_options)
        self.position = Position()
        self._guard = make_guard(config.guard, self.method, self.stream, self.device)

    # -- Learning --------------------------------------------------------------------------------------

    def execute(
        self,
        report: Report = lambda update: None,
        stopping: Callable[[], bool] = lambda: False,
        loggers: Sequence[Logger] = (),
    ) -> Record:
        """Train to the end, from the checkpoint in the folder if there is one, and save the record.

        `stopping` is called after every step; when it returns True, the state is saved as soon as the method is at
        rest, and Interrupted raised.
        """
        seeded = seed_generators(self.config.seed, self.device)
        with deterministic_kernels(self.config.deterministic), seeded as self._generators:
            self._resume()
            self._log = RunLog(self.folder, self.position, loggers)
            return self._execute(report, stopping)

    def _execute(self, report: Report, stopping: Callable[[], bool]) -> Record:
        self._started = self._saved = time.monotonic()
        self._interval = self.checkpoint_seconds
        try:
            if not self.position.initial:
                self.position.initial = self._accuracies()
            while self.position.task < len(self.stream):
                self._learn_task(report, stopping)
            if len(self.stream) > 1:  # a method has no effect on the first task
                self.position.warnings += self.method.concerns()
            return self._finish("done")
        except (Diverged, NonFiniteGradient) as error:
            return self._finish("diverged", str(error))

    def _learn_task(self, report: Report, stopping: Callable[[], bool]) -> None:
        number, task = self.position.task, self.stream.tasks[self.position.task]
        taught = list(self.stream.tasks[: number + 1]) if self.method.trains_on_all_tasks else [task]
        if self.position.epoch == 0 and self.position.batch == 0:
            self.method.begin_task(number, task)
            if self._guard is not None:
                self._guard.begin_task(number)
                self._keep_point()
        while self.position.epoch < self.config.epochs:
            try:
                self._learn_epoch(taught, report, stopping)
            except (SharpForgetting, Diverged, NonFiniteGradient) as error:
                if self._guard is None or not self._guard.is_watching:
                    raise
                self._go_back(self._guard.go_back(), error)
        row = self._accuracies()  # first, because it detects a model that the last step broke
        if self._guard is not None:
            self._guard.end_task()
            self.method.reset_lr()
        self._end_task(row)
        # The end of a task is where to save, unless that takes long and was done, or is not wanted, for a while yet.
        if time.monotonic() - self._saved >= self._interval - CHECKPOINT_SECONDS:
            self._save()

    def _end_task(self, row: list[float]) -> None:
        """Let the method store what later tasks need of the one just learnt; these are the accuracies after it."""
        number = self.position.task
        generator = make_generator(self.config.seed, f"end of stream task {number}")
        self.method.end_task(number, self.stream.tasks[number], generator)
        self.position.matrix.append(row)
        self._log.add_accuracies(self.position, row)
        self.position.task, self.position.epoch = number + 1, 0

    def _learn_epoch(self, taught: list[Task], report: Report, stopping: Callable[[], bool]) -> None:
        """Make the steps of an epoch that are left; raise SharpForgetting where the guard finds it."""
        at, config = self.position, self.config
        label = f"stream task {at.task}, epoch {at.epoch}"
        batches = epoch_batches(taught, config.batch_size, config.seed, label, self.device, at.batch)
        began, first = time.monotonic(), at.steps
        self.model.train()
        loss = None  # a run stopped after the last batch of an epoch resumes with none
        try:
            for inputs, targets, outputs in batches:
                loss = self.method.step(inputs, targets, outputs)
                at.steps += 1
                at.batch += 1
                if at.steps % TELEMETRY_EVERY == 0:
                    self._tell(loss, report, (at.steps - first) / (time.monotonic() - began))
                self._watch_forgetting(loss, steps_per_epoch(taught, config.batch_size))
                stop = stopping()
                is_due = stop or time.monotonic() - self._saved > self._interval
                if is_due and self.method.can_checkpoint:
                    at.stepping += time.monotonic() - began
                    self._save()
                    began, first = time.monotonic(), at.steps
                    if stop:
                        raise Interrupted
            if loss is not None:
                self._check_finite(loss)
        finally:
            at.stepping += time.monotonic() - began
        at.epoch, at.batch = at.epoch + 1, 0

    def _accuracies(self) -> list[float]:
        return evaluate(self.method, self.stream, self.config.evaluate, self.device)

    def _tell(self, loss: Tensor, report: Report, rate: float) -> None:
        at, value = self.position, self._check_finite(loss)
        totals = add_up_decisions(self._log.add_step(at, value, self.method))
        report(
            Update(
                at.task, len(self.stream), at.epoch, self.config.epochs, at.steps, self.total_steps, rate, value, totals
            )
        )

    def _check_finite(self, loss: Tensor) -> float:
        value = float(loss)
        if not isfinite(value):
            raise Diverged(f"the loss was {value} at step {self.position.steps}, in task {self.position.task + 1}")
        return value

    @property
    def total_steps(self) -> int:
        """The number of steps of the whole run."""
        tasks = list(self.stream.tasks)
        taught = [tasks[: n + 1] if self.method.trains_on_all_tasks else [task] for n, task in enumerate(tasks)]
        return self.config.epochs * sum(steps_per_epoch(each, self.config.batch_size) for each in taught)

    # -- Going back ------------------------------------------------------------------------------------------

    def _watch_forgetting(self, loss: Tensor, steps: int) -> None:
        """Let the guard look at the step just made, of so many in an epoch, and keep the state where it is good."""
        at, guard = self.position, self._guard
        if guard is not None and guard.see_step(at.epoch * steps + at.batch, self.config.epochs * steps):
            self._check_finite(loss)
            self._keep_point()

    def _keep_point(self) -> None:
        if self._guard is not None and self._guard.is_watching:
            self._guard.keep(self._make_state() if self.method.memory_bytes <= POINT_BYTES else None)

    def _go_back(self, point: dict[str, Any], error: Exception) -> None:
        """Go back to the last good point of this task, and learn more carefully from there on."""
        left = self.position
        self.position = at = restore_snapshot(point, self.method, self._generators)
        at.add_rollback(left, error, self.method.halve_lr())
        self._log.go_to(at)
        self._keep_point()  # again, as tightened: going back there once more must tighten further
        if self._guard is not None and not self._guard.is_watching:
            at.warnings.append(f"guard: task {at.task + 1} used its last rollback; unguarded from step {at.steps} on")

    # -- Stopping and resuming ---------------------------------------------------------------------------

    def _make_state(self) -> dict[str, Any]:
        """Return the state of the run, from which it can go on."""
        self._log.flush(self.position)
        return take_snapshot(self.position, self.method, self._generators)

    def _save(self) -> None:
        """Save a checkpoint, with the lines of steps.jsonl that it counts on."""
        now = time.monotonic()
        self.position.seconds += now - self._started
        self._started = now
        state = self._make_state()
        self._log.sync()
        state["data"] = describe_dataset(self.dataset)
        if self._guard is not None:
            state["guard"] = self._guard.state_dict()
        save_checkpoint(self.folder, state, self.config.model_dump())
        self._saved = time.monotonic()
        self._interval = max(self.checkpoint_seconds, (self._saved - now) / CHECKPOINT_SHARE)

    def _resume(self) -> None:
        loaded = load_checkpoint(self.folder)
        if loaded is None:
            return
        if loaded.label is not None:
            check_label(self.folder, loaded.label, self.config, describe_dataset(self.dataset))
            self.position = restore_snapshot(loaded.state, self.method, self._generators)
            if self._guard is not None:
                self._guard.load_state_dict(loaded.state["guard"])
        if loaded.notice:
            self.position.warnings.append(loaded.notice)

    def _finish(self, status: str, error: str = "") -> Record:
        at, config = self.position, self.config
        metrics = summary(at.matrix, at.initial) if len(at.matrix) == len(self.stream) else {}
        self._log.add_metrics(at, metrics)
        record = Record(
            benchmark=config.benchmark,
            scenario=config.scenario,
            method=config.method,
            seed=config.seed,
            status=status,
            order=list(self.stream.order),
            task_names=[task.name for task in self.stream],
            accuracy_matrix=at.matrix,
            initial_accuracy=at.initial,
            metrics=metrics,
            decisions=self.method.decisions,
            rollbacks=at.rollbacks,
            memory_bytes=self.method.memory_bytes,
            stores_data=self.method.stores_data,
            trained_on=self.stream.count_training_examples(),
            directions=self.method.directions,
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            seconds=at.seconds + time.monotonic() - self._started,
            step_ms=1e3 * at.stepping / max(at.steps_made, 1),
            steps=at.steps,
            weights_sha256=weights_digest(self.model),
            steps_sha256=self._log.digest,
            warnings=at.warnings,
            error=error,
            data=describe_dataset(self.dataset),
            config=config.model_dump(),
            versions=versions(config.device),
            finished=timestamp(),
        )
        record.save(self.folder)
        remove_checkpoints(self.folder)
        return record
