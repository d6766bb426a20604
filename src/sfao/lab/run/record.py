"""The record of a run, and its file."""

import hashlib
import platform
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from math import isclose
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

import torch
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from typing_extensions import TypedDict

from sfao import __version__
from sfao.lab.console import shorten
from sfao.lab.data.dataset import Dataset
from sfao.lab.metrics import summary
from sfao.lab.run.files import seal, unseal, write_json
from sfao.lab.safe_io import MAX_JSON, parse_json, read_file

RECORD = "record.json"

Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Settings(TypedDict, total=False):
    """The settings that other modules read from a record; the others are kept as they are."""

    fraction: float
    model: dict[str, Any]
    tasks: int | None
    evaluate: str
    validation: float | None


class _Data(TypedDict):
    name: str
    train: int
    test: int
    complete: bool
    embedded: NotRequired[bool]
    digest: NotRequired[str]
    published: NotRequired[bool]


#: In steps that count; `step` counts undone ones too.
_Rollback = TypedDict(
    "_Rollback",
    {"task": int, "step": int, "from": int, "to": int, "reason": str, "values": dict[str, Any], "tightened": str},
)


def _conforms_to(kind: Any) -> AfterValidator:
    """Return a validator that leaves a value as it is, but refuses one that is not of this kind."""
    adapter = TypeAdapter(kind)

    def check(value: Any) -> Any:
        if value:  # a failed run may have none
            adapter.validate_python(value, strict=True)
        return value

    return AfterValidator(check)


def _check_time(text: str) -> str:
    if text:
        stamp = datetime.fromisoformat(text)
        if stamp.tzinfo is None:
            raise ValueError(f"`finished` must be a time with its zone, got {text!r}")
        stamp.astimezone(UTC)  # there is no year 0
    return text


def _check_order(order: list[int]) -> list[int]:
    if sorted(order) != list(range(len(order))):
        raise ValueError(f"`order` must name each task once, got {order}")
    return order


@dataclass(config=ConfigDict(extra="forbid"))
class Record:
    """The results of one run. A run that failed has no metrics."""

    benchmark: str
    scenario: str
    method: str
    seed: int
    status: Literal["done", "diverged", "failed"]
    #: The task of each row and column of the matrix: its number in the benchmark, from 0, and its name.
    order: Annotated[list[int], AfterValidator(_check_order)] = Field(default_factory=list)
    task_names: list[str] = Field(default_factory=list)
    accuracy_matrix: list[list[float]] = Field(default_factory=list)
    initial_accuracy: list[float] = Field(default_factory=list)
    metrics: dict[str, float] = Field(default_factory=dict)
    decisions: dict[str, dict[str, int]] = Field(default_factory=dict)
    rollbacks: Annotated[list[dict[str, Any]], _conforms_to(list[_Rollback])] = Field(default_factory=list)
    memory_bytes: Count = 0
    #: True if examples of past tasks were kept, which are part of the bytes.
    stores_data: bool | None = None
    #: Training examples, each counted once.
    trained_on: Count = 0
    #: Stored directions in the layer that holds most; 0 for methods that store none.
    directions: Count = 0
    #: Parameters of the model.
    parameters: Count = 0
    seconds: Amount = 0.0
    step_ms: Amount = 0.0
    steps: Count = 0
    weights_sha256: str = ""
    #: The digest of steps.jsonl as the run left it.
    steps_sha256: str = ""
    warnings: list[str] = Field(default_factory=list)
    error: str = ""
    data: Annotated[dict[str, Any], _conforms_to(_Data)] = Field(default_factory=dict)
    config: Annotated[dict[str, Any], _conforms_to(_Settings)] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)
    #: When the run ended, ISO 8601 in UTC.
    finished: Annotated[str, AfterValidator(_check_time)] = ""

    def save(self, folder: Path) -> None:
        write_json(folder / RECORD, self.as_json())

    def as_json(self) -> dict[str, Any]:
        """Return plain containers with a checksum."""
        return seal(asdict(self))


def load_record(folder: Path) -> Record:
    """Return the record in a run folder; raise a ValueError that names the file and the fault if it is damaged."""
    path = folder / RECORD
    return read_record(read_file(path, MAX_JSON), str(path))


def read_record(text: str | bytes, where: str) -> Record:
    """Return the record in this text; `where` names the text in errors."""
    try:
        record = Record(**unseal(parse_json(text, finite=False)))
        _check_metrics(record)
        return record
    except ValidationError as error:
        first = error.errors()[0]
        fault = f"`{'.'.join(map(str, first['loc']))}`: {first['msg']}, got {first['input']!r}"
    except (ValueError, TypeError, OverflowError) as error:
        fault = str(error)
    raise ValueError(
        f"{where} must be the record of a run, but it is damaged: {shorten(fault, 300)}; "
        "put a copy in its place, or remove it to do the run again"
    )


def _check_metrics(record: Record) -> None:
    """Check that the metrics are those of the accuracy matrix."""
    if record.status == "done":
        for name, value in summary(record.accuracy_matrix, record.initial_accuracy).items():
            if not isclose(record.metrics.get(name, float("nan")), value, abs_tol=1e-9):
                got = record.metrics.get(name)
                raise ValueError(f"`metrics.{name}` must be that of the accuracy matrix, {value}, got {got}")


def describe_rollback(rollback: Mapping[str, Any]) -> str:
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
    """Return True if two descriptions may be of the same data; those of some kept records have no digest."""
    named = all(one.get(key) == other.get(key) for key in ("name", "train", "test", "complete", "embedded"))
    return named and (one.get("digest") or other.get("digest")) == (other.get("digest") or one.get("digest"))


def list_digests(records: Iterable[Record]) -> list[str]:
    """Return the digests of the data of records, each once."""
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
