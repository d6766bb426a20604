"""The record of a run, and its file."""

import hashlib
import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from math import inf, isclose, nan
from pathlib import Path
from types import NoneType
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from sfao import __version__
from sfao.lab.console import shorten
from sfao.lab.data.dataset import Dataset
from sfao.lab.metrics import summary
from sfao.lab.run.files import write_json
from sfao.lab.run.seal import seal, unseal
from sfao.lab.safe_io import MAX_JSON, parse_json, read_file

RECORD = "record.json"
STATUSES = ("done", "diverged", "failed")


@dataclass
class Record:
    """Metrics, matrix, decisions, bytes and times of one run; `status` is done, diverged or failed."""

    benchmark: str
    scenario: str
    method: str
    seed: int
    status: str
    #: The task that each row and each column of the matrix is of, in the order learnt: its number in the benchmark,
    #: from 0, and its name. Empty in records of older versions.
    order: list[int] = field(default_factory=list)
    task_names: list[str] = field(default_factory=list)
    accuracy_matrix: list[list[float]] = field(default_factory=list)
    initial_accuracy: list[float] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    decisions: dict[str, dict[str, int]] = field(default_factory=dict)
    #: The times that the guard went back: {task, step, from, to, reason, values, tightened}.
    rollbacks: list[dict[str, Any]] = field(default_factory=list)
    memory_bytes: int = 0
    #: True if examples of past tasks were kept, which are part of the bytes; None in records of older versions.
    stores_data: bool | None = None
    #: The number of training examples that were learnt from, each counted once; 0 in records of older versions.
    trained_on: int = 0
    #: Stored directions in the layer that holds most; 0 for methods that store none.
    directions: int = 0
    #: The number of parameters of the model.
    parameters: int = 0
    seconds: float = 0.0
    step_ms: float = 0.0
    steps: int = 0
    weights_sha256: str = ""
    #: The digest of steps.jsonl as the run left it; empty in records of older versions.
    steps_sha256: str = ""
    warnings: list[str] = field(default_factory=list)
    error: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    #: When the run ended, ISO 8601 in UTC; empty in records of older versions.
    finished: str = ""

    def save(self, folder: Path) -> None:
        write_json(folder / RECORD, self.as_json())

    def as_json(self) -> dict[str, Any]:
        """Return plain containers, under a digest of all of them."""
        return seal(asdict(self))


_RECORD: TypeAdapter[Record] = TypeAdapter(Record)
#: Required fields of `data`, where it is not empty.
_DATA = {"name": str, "train": int, "test": int, "complete": bool}
#: Fields of `data` that only newer records have.
_NEWER_DATA = {"digest": str, "published": bool}
#: Required fields of every rollback.
_ROLLBACK = {"task": int, "step": int, "from": int, "to": int, "reason": str, "values": dict, "tightened": str}
#: Counts and times.
_AMOUNTS = ("memory_bytes", "directions", "parameters", "trained_on", "seconds", "step_ms", "steps")
#: Settings that other modules read from `config`, whichever version wrote it.
_SETTINGS: dict[str, type | tuple[type, ...]] = {
    "fraction": (int, float),
    "model": dict,
    "tasks": (int, NoneType),
    "evaluate": str,
    "validation": (int, float, NoneType),
}


def load_record(folder: Path) -> Record:
    """Return the record in a run folder; raise a ValueError that names the file and the fault when it is damaged."""
    path = folder / RECORD
    return read_record(read_file(path, MAX_JSON), str(path))


def read_record(text: str | bytes, where: str) -> Record:
    """Return the record in this text; `where` names the text in errors."""
    try:
        values = unseal(parse_json(text, finite=False), new=("steps_sha256",))
        values.pop("stacked", None)  # only older versions have it
        record = _RECORD.validate_python(vars(Record(**values)))
        _check(record)
    except ValidationError as error:
        first = error.errors()[0]
        raise _make_error(where, f"`{'.'.join(map(str, first['loc']))}`: {first['msg']}") from error
    except (ValueError, TypeError, OverflowError) as error:
        raise _make_error(where, error) from error
    return record


def _make_error(where: object, why: object) -> ValueError:
    return ValueError(
        f"{where} must be the record of a run, but it is damaged: {shorten(str(why), 300)}; "
        "put a copy in its place, or remove it to do the run again"
    )


def _list_data_fields(data: Mapping[str, Any]) -> list[tuple[str, type]]:
    newer = [(name, kind) for name, kind in _NEWER_DATA.items() if name in data]
    return [*_DATA.items(), *newer] if data else []


def _check(record: Record) -> None:
    """Check the rules that types alone do not express."""
    if record.status not in STATUSES:
        raise ValueError(f"`status` must be one of {', '.join(STATUSES)}, got {record.status!r}")
    for name, kind in _list_data_fields(record.data):
        if not isinstance(record.data.get(name), kind):
            raise ValueError(f"`data.{name}` must be of type {kind.__name__}, got {record.data.get(name)!r}")
    if record.finished:
        _check_time(record.finished)
    for name in _AMOUNTS:
        if not 0 <= getattr(record, name) < inf:
            raise ValueError(f"`{name}` must be a finite number of at least 0, got {getattr(record, name)}")
    for name, kinds in _SETTINGS.items():
        if name in record.config and not isinstance(record.config[name], kinds):
            raise ValueError(f"`config.{name}` must be a setting of a run, got {record.config[name]!r}")
    if record.order and sorted(record.order) != list(range(len(record.order))):
        raise ValueError(f"`order` must name each task once, got {record.order}")
    for rollback in record.rollbacks:
        _check_rollback(rollback)
    if record.status == "done":
        _check_metrics(record)


def _check_time(text: str) -> None:
    stamp = datetime.fromisoformat(text)
    if stamp.tzinfo is None:
        raise ValueError(f"`finished` must be a time with its zone, got {text!r}")
    stamp.astimezone(UTC)  # there is no year 0


def _check_rollback(rollback: dict[str, Any]) -> None:
    for name, kind in _ROLLBACK.items():
        if not isinstance(rollback.get(name), kind):
            raise ValueError(f"`rollbacks` must tell `{name}` as {kind.__name__}, got {rollback.get(name)!r}")


def _check_metrics(record: Record) -> None:
    for name, value in summary(record.accuracy_matrix, record.initial_accuracy).items():
        told = record.metrics.get(name)
        if not isclose(nan if told is None else told, value, abs_tol=1e-9):
            raise ValueError(f"`metrics.{name}` must be that of the accuracy matrix, {value}, got {told}")


def describe_rollback(rollback: dict[str, Any]) -> str:
    """Return one rollback of a record in words."""
    return (
        f"rollback in task {rollback['task'] + 1}, from step {rollback['from']} to {rollback['to']}: "
        f"{rollback['reason']}; {rollback['tightened']}"
    )


def timestamp() -> str:
    """Return the time now, ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def describe_dataset(dataset: Dataset) -> dict[str, Any]:
    """Return the description of the data in a record, which tells results on a part of it from those on all of it."""
    return {
        "name": dataset.name,
        "train": len(dataset.train_labels),
        "test": len(dataset.test_labels),
        "complete": dataset.complete,
        "embedded": dataset.embedded,
        **({"digest": dataset.digest} if dataset.digest else {}),
        **({} if dataset.published is None else {"published": dataset.published}),
    }


def is_same_data(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether two descriptions may be of the same data; records from before have no digest of published ones."""
    named = all(one.get(key) == other.get(key) for key in ("name", "train", "test", "complete", "embedded"))
    return named and (one.get("digest") or other.get("digest")) == (other.get("digest") or one.get("digest"))


def list_digests(records: Iterable[Record]) -> list[str]:
    """Return the digests of the data of records, each once; records from before have none."""
    return list(dict.fromkeys(record.data["digest"] for record in records if record.data.get("digest")))


def weights_digest(model: nn.Module) -> str:
    """Return a fingerprint of all parameters and buffers, equal if and only if they are bit for bit."""
    digest = hashlib.sha256()
    for name, tensor in _read_weights(model):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _read_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of `state_dict` in its order, without its hooks, which may refuse weights that diverged."""
    for prefix, module in model.named_modules(remove_duplicate=False):
        transient = module._non_persistent_buffers_set
        buffers = {name: buffer for name, buffer in module._buffers.items() if name not in transient}
        for name, tensor in {**module._parameters, **buffers}.items():
            if tensor is not None:
                yield f"{prefix}.{name}" if prefix else name, tensor


def versions(device: str) -> dict[str, str]:
    """Return the versions of software and hardware that a run used."""
    gpu = {"gpu": torch.cuda.get_device_name(device)} if device.startswith("cuda") else {}
    return {
        "sfao": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "device": device,
        "threads": str(torch.get_num_threads()),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        **gpu,
    }
