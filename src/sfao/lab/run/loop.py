"""One run: learn a sequence of tasks, evaluate after each, resume wherever it was stopped."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sfao.decision import NonFiniteGradient
from sfao.lab.data.dataset import Dataset
from sfao.lab.loggers import Logger
from sfao.lab.methods import METHODS
from sfao.lab.metrics import summary
from sfao.lab.run.checkpoint import load_checkpoint, remove_checkpoints, save_checkpoint
from sfao.lab.run.config import RunConfig
from sfao.lab.run.epoch_batches import check_augmentable, epoch_batches, steps_per_epoch
from sfao.lab.run.errors import ConfigError, Diverged, Interrupted, SharpForgetting
from sfao.lab.run.evaluation import evaluate, validation_loss
from sfao.lab.run.folder import check_label, occupy, reuse_record
from sfao.lab.run.guard import Guard
from sfao.lab.run.progress import Position, Report, Update, add_up_decisions
from sfao.lab.run.record import Record, describe_dataset, timestamp, versions, weights_digest
from sfao.lab.run.run_log import RunLog, open_loggers, parse_loggers
from sfao.lab.run.schedule import make_schedule
from sfao.lab.run.setup import deterministic_kernels, make_model, seed_generators, usable_device
from sfao.lab.streams.seeding import make_generator, slice_dataset
from sfao.lab.streams.stream import Task
from sfao.lab.streams.suite import BENCHMARKS

TELEMETRY_EVERY = 20
CHECKPOINT_SECONDS = 20.0
#: The largest share of the run time that saving may take.
CHECKPOINT_SHARE = 0.1


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
    beginning: Callable[["Run"], None] = lambda run: None,
    log: Sequence[str] = (),
) -> Record:
    """Run, or resume, the configured run in its folder, and return its record.

    A run that is finished already is not repeated: `skipping` is called, and its record returned. For any other,
    `beginning` is called with it before it starts.
    `log` names the loggers to log to, in the same folder; see :data:`sfao.lab.loggers.LOGGERS`.
    """
    loggers_wanted = parse_loggers(log)
    run = set_up(config, BENCHMARKS[config.benchmark].load(data_root), folder, checkpoint_seconds)
    with occupy(folder, config, resume=resume) as finished:
        if finished is None:
            beginning(run)
            with open_loggers(loggers_wanted, folder, config) as loggers:
                return run.execute(report, stopping, loggers)
        skipping()
        return reuse_record(folder, finished, config, describe_dataset(run.dataset))


def set_up(config: RunConfig, dataset: Dataset, folder: Path, checkpoint_seconds: float = CHECKPOINT_SECONDS) -> "Run":
    """Return the run, ready to start: some settings are only wrong together with data, model and device."""
    try:
        return Run(config, dataset, folder, checkpoint_seconds)
    except (ValueError, RuntimeError, TypeError) as error:  # too many tasks for the classes, too large a model
        raise ConfigError(" ".join(str(error).split())[:300]) from error


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
        if config.augment:
            check_augmentable(self.stream)
        self.model = make_model(config.model, self.stream, config.seed, self.device)
        self.method = METHODS[config.method](self.model, config.training, config.method_options)
        self.position = Position()
        self._schedule = make_schedule(config, self.method)
        self._guard = Guard(config.guard, self.method, self.stream, self.device) if config.guard else None

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
            self._started = self._saved = time.monotonic()
            self._interval = self.checkpoint_seconds
            try:
                if not self.position.initial:
                    self.position.initial = self._measure_accuracies()
                while self.position.task < len(self.stream):
                    self._learn_task(report, stopping)
                if len(self.stream) > 1:  # a method has no effect on the first task
                    self.position.warnings += self.method.concerns()
                return self._finish("done")
            except (Diverged, NonFiniteGradient) as error:
                return self._finish("diverged", str(error))

    def _learn_task(self, report: Report, stopping: Callable[[], bool]) -> None:
        number, task = self.position.task, self.stream.tasks[self.position.task]
        first = 0 if self.method.trains_on_all_tasks else number
        tasks = list(self.stream.tasks[first : number + 1])
        if self.position.epoch == 0 and self.position.batch == 0:
            self._begin_task(number, task)
        while self.position.epoch < self.config.epochs and not (self._schedule and self._schedule.is_over):
            try:
                self._learn_epoch(tasks, report, stopping)
            except (SharpForgetting, Diverged, NonFiniteGradient) as error:
                if self._guard is None or not self._guard.is_watching:
                    raise
                self._go_back(self._guard, error)
                continue
            if self._schedule is not None and self._schedule.needs_validation:
                self._schedule.end_epoch(validation_loss(self.method, tasks, first, self.device))
        if self._schedule is not None:
            self._schedule.end_task()
        row = self._measure_accuracies()  # first, because it detects a model that the last step broke
        if self._guard is not None:
            self._guard.end_task()
            self.method.reset_lr()
        self._end_task(row)
        # The end of a task is where to save, unless that takes long and was done, or is not wanted, for a while yet.
        if time.monotonic() - self._saved >= self._interval - CHECKPOINT_SECONDS:
            self._save()

    def _begin_task(self, number: int, task: Task) -> None:
        self.method.begin_task(number, task)
        if self._schedule is not None:
            self._schedule.begin_task()
        if self._guard is not None:
            self._guard.begin_task(number)
            self._keep_point(self._guard)

    def _end_task(self, row: list[float]) -> None:
        """Let the method store what later tasks need of the one just learned; these are the accuracies after it."""
        number = self.position.task
        generator = make_generator(self.config.seed, f"end of stream task {number}")
        self.method.end_task(number, self.stream.tasks[number], generator)
        self.position.matrix.append(row)
        self._log.add_accuracies(self.position, row)
        self.position.task, self.position.epoch = number + 1, 0

    def _learn_epoch(self, tasks: list[Task], report: Report, stopping: Callable[[], bool]) -> None:
        """Make the steps of an epoch that are left; raise SharpForgetting if the guard finds it."""
        at, config, schedule, guard = self.position, self.config, self._schedule, self._guard
        label = f"stream task {at.task}, epoch {at.epoch}"
        batches = epoch_batches(tasks, config.batch_size, config.seed, label, self.device, at.batch, config.augment)
        per_epoch = steps_per_epoch(tasks, config.batch_size)
        began, first = time.monotonic(), at.steps
        self.model.train()
        loss = None  # a run stopped after the last batch of an epoch resumes with none
        try:
            for inputs, targets, outputs in batches:
                if schedule is not None:
                    schedule.begin_step(at.epoch * per_epoch + at.batch, config.epochs * per_epoch)
                loss = self.method.step(inputs, targets, outputs)
                at.steps += 1
                at.batch += 1
                if at.steps % TELEMETRY_EVERY == 0:
                    self._report(loss, report, (at.steps - first) / (time.monotonic() - began))
                if guard is not None and guard.see_step(at.epoch * per_epoch + at.batch, config.epochs * per_epoch):
                    self._check_finite(loss)
                    self._keep_point(guard)
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

    def _measure_accuracies(self) -> list[float]:
        return evaluate(self.method, self.stream, self.config.evaluate, self.device)

    def _report(self, loss: Tensor, report: Report, rate: float) -> None:
        at, value = self.position, self._check_finite(loss)
        totals = add_up_decisions(self._log.add_step(at, value, self.method))
        tasks, epochs = len(self.stream), self.config.epochs
        report(Update(at.task, tasks, at.epoch, epochs, at.steps, self.total_steps, rate, value, totals))

    def _check_finite(self, loss: Tensor) -> float:
        value = float(loss)
        if not isfinite(value):
            raise Diverged(f"the loss was {value} at step {self.position.steps}, in task {self.position.task + 1}")
        return value

    @property
    def total_steps(self) -> int:
        """The number of steps of the whole run, or more if a schedule ends a task early."""
        tasks = list(self.stream.tasks)
        learned = [tasks[: n + 1] if self.method.trains_on_all_tasks else [task] for n, task in enumerate(tasks)]
        return self.config.epochs * sum(steps_per_epoch(each, self.config.batch_size) for each in learned)

    # -- Going back ------------------------------------------------------------------------------------------

    def _keep_point(self, guard: Guard) -> None:
        if guard.is_watching:
            guard.keep(self._make_state())

    def _go_back(self, guard: Guard, error: Exception) -> None:
        """Go back to the last good point of this task, and learn more carefully from there on."""
        left = self.position
        self._restore(guard.go_back())
        at = self.position
        at.add_rollback(left, error, self.method.halve_lr())
        self._log.go_to(at)
        self._keep_point(guard)  # again, as tightened: going back there once more must tighten further
        if not guard.is_watching:
            at.warnings.append(f"guard: task {at.task + 1} used its last rollback; unguarded from step {at.steps} on")

    # -- Stopping and resuming ---------------------------------------------------------------------------

    def _make_state(self) -> dict[str, Any]:
        """Return the state of the run, in plain containers; its tensors are those that the next step changes."""
        self._log.flush(self.position)
        return {
            "position": asdict(self.position),
            "model": self.model.state_dict(),
            "method": self.method.state_dict(),
            "generators": [generator.get_state() for generator in self._generators],
            "threads": torch.get_num_threads(),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        """Bring model, method, generators and position back to this state."""
        self.model.load_state_dict(state["model"])
        self.method.load_state_dict(state["method"])
        for generator, saved in zip(self._generators, state["generators"], strict=True):
            generator.set_state(saved)
        self.position = Position(**state["position"])
        if state["threads"] != torch.get_num_threads():  # sums on another number of threads are rounded elsewhere
            now = torch.get_num_threads()
            self.position.warnings.append(
                f"resumed on {now} CPU threads after {state['threads']}: the last bits may differ"
            )

    def _save(self) -> None:
        """Save a checkpoint, with the lines of steps.jsonl that it counts on."""
        now = time.monotonic()
        self.position.seconds += now - self._started
        self._started = now
        state = self._make_state()
        self._log.sync()
        for name, part in (("guard", self._guard), ("schedule", self._schedule)):
            if part is not None:
                state[name] = part.state_dict()
        save_checkpoint(self.folder, state, self.config.model_dump(), describe_dataset(self.dataset))
        self._saved = time.monotonic()
        self._interval = max(self.checkpoint_seconds, (self._saved - now) / CHECKPOINT_SHARE)

    def _resume(self) -> None:
        loaded = load_checkpoint(self.folder)
        if loaded is None:
            return
        if loaded.label is not None:
            check_label(self.folder, loaded.label, self.config, describe_dataset(self.dataset))
            self._restore(loaded.state)
            for name, part in (("guard", self._guard), ("schedule", self._schedule)):
                if part is not None:
                    part.load_state_dict(loaded.state[name])
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
            status=status,  # type: ignore[arg-type]
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
