"""The log of a run while it goes on: steps.jsonl, and values for the loggers that were asked for."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfao.checks import check_choice
from sfao.lab.loggers import LOGGERS, Logger
from sfao.lab.methods import Method
from sfao.lab.run.config import RunConfig
from sfao.lab.run.errors import ConfigError, FolderError, reraise_as
from sfao.lab.safe_io import name_file_in_errors, open_file, read_file

if TYPE_CHECKING:
    from sfao.lab.run.progress import Position

STEPS = "steps.jsonl"


class Telemetry:
    """steps.jsonl. A checkpoint keeps its length and digest, so that a resumed run can cut off what comes after."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / STEPS
        open_file(self._path, os.O_RDWR | os.O_CREAT, "r+b").close()

    def cut(self, length: int, digest: str) -> bool:
        """Drop what the file holds beyond this length, and all of it if the rest has another digest (False)."""
        with name_file_in_errors(self._path), open_file(self._path, os.O_RDWR, "r+b") as file:
            kept = file.read(length)
            is_intact = not digest or sha256(kept).hexdigest() == digest
            kept = kept if is_intact else b""
            file.truncate(len(kept))
        self.length, self._digest = len(kept), sha256(kept)
        return is_intact

    def add(self, **values: Any) -> None:
        line = (json.dumps(values) + "\n").encode()
        with name_file_in_errors(self._path), open_file(self._path, os.O_WRONLY | os.O_APPEND, "ab") as file:
            file.write(line)
        self._digest.update(line)
        self.length += len(line)

    def sync(self) -> None:
        """Flush the lines to the disk: a checkpoint counts on them."""
        with name_file_in_errors(self._path), open_file(self._path, os.O_RDONLY) as file:
            os.fsync(file.fileno())

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()


def digest_steps(folder: Path) -> str:
    """Return the digest of the lines that a run left; empty if it left none."""
    try:
        return sha256(read_file(folder / STEPS)).hexdigest()
    except FileNotFoundError:
        return ""


class RunLog:
    """The telemetry of a run, and its loggers.

    Loggers count the steps that were made, those that a rollback undid included, because they can't take values back.
    The lines of steps.jsonl are of the steps that count.
    """

    def __init__(self, folder: Path, at: "Position", loggers: Sequence[Logger]) -> None:
        self._telemetry, self._loggers = Telemetry(folder), loggers
        self.go_to(at)

    def add_step(self, at: "Position", loss: float, method: Method) -> dict[str, dict[str, int]]:
        """Log the step just made, and return the decisions of each layer so far."""
        decisions, looks = method.decisions, method.layer_telemetry
        rounded = {layer: {name: round(number, 4) for name, number in look.items()} for layer, look in looks.items()}
        self._telemetry.add(step=at.steps, task=at.task, epoch=at.epoch, loss=loss, decisions=decisions, gate=rounded)
        run = {"loss": loss, "task": at.task + 1, "epoch": at.epoch + 1, "memory_bytes": method.memory_bytes}
        rollbacks = {"rollbacks": len(at.rollbacks)} if at.rollbacks else {}
        self._log({**run, **rollbacks, **name_by_layer(decisions), **name_by_layer(looks)}, at)
        return decisions

    def add_accuracies(self, at: "Position", row: Sequence[float]) -> None:
        """Log the accuracies after a task: of each, and the mean over those learned so far."""
        learned = row[: len(at.matrix)]
        each = {f"accuracy/task {number}": accuracy for number, accuracy in enumerate(row, start=1)}
        self._log({**each, "accuracy/average": sum(learned) / len(learned)}, at)

    def add_metrics(self, at: "Position", metrics: Mapping[str, float]) -> None:
        """Log the metrics of a finished run."""
        self._log({f"metrics/{name}": value for name, value in metrics.items()}, at)

    def _log(self, values: Mapping[str, float], at: "Position") -> None:
        for logger in self._loggers:
            logger.log(values, at.steps_made)

    def flush(self, at: "Position") -> None:
        """Flush the loggers, and note the length and the digest of steps.jsonl, which a checkpoint keeps."""
        for logger in self._loggers:
            logger.flush()
        at.telemetry, at.telemetry_sha256 = self._telemetry.length, self._telemetry.digest

    def sync(self) -> None:
        """Flush steps.jsonl to the disk."""
        self._telemetry.sync()

    @property
    def digest(self) -> str:
        """The digest of steps.jsonl."""
        return self._telemetry.digest

    def go_to(self, at: "Position") -> None:
        """Drop the lines of steps.jsonl that come after this position, and warn of damage to those before it."""
        if not self._telemetry.cut(at.telemetry, at.telemetry_sha256):
            at.warnings.append(f"{STEPS} was damaged; its lines up to step {at.steps} are lost")


def parse_loggers(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the names in `csv,tensorboard` and the like, each of a logger whose library is there."""
    names = [name.strip() for text in texts for name in text.split(",")]
    for name in names:
        with reraise_as(ConfigError):
            check_choice("log", name, tuple(LOGGERS))
        if names.count(name) > 1:
            raise ConfigError(f"`log` must name each logger once, got {name!r} twice")
        LOGGERS[name].check_libraries()
    return tuple(names)


@contextmanager
def open_loggers(names: Sequence[str], folder: Path, config: RunConfig) -> Iterator[list[Logger]]:
    """Yield the loggers of a run, which continue where its log in the folder ended."""
    run_name = f"{config.method} on {config.benchmark}, seed {config.seed}"
    with ExitStack() as opened:
        loggers: list[Logger] = []
        for name in names:
            with reraise_as(FolderError):  # a log that was damaged
                logger = LOGGERS[name](folder, run_name=run_name, config=flatten(config.model_dump()), resume=True)
            loggers.append(opened.enter_context(logger))
        yield loggers


def flatten(settings: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return nested settings by dotted names, as `--set` takes them."""
    found: dict[str, object] = {}
    for name, value in settings.items():
        found |= flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def name_by_layer(values: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return {"layers/LAYER/NAME": value} of {layer: {name: value}}."""
    return {f"layers/{layer}/{name}": float(value) for layer, own in values.items() for name, value in own.items()}
