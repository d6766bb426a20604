"""The record: what a run leaves behind."""

import hashlib
import json
import platform
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sfao.benchmarks.sources import Dataset
from sfao.experiment.files import write_json

RECORD = "record.json"


@dataclass
class Record:
    """Metrics, matrix, decisions, bytes and times of one run; `status` is done, diverged or failed."""

    benchmark: str
    scenario: str
    method: str
    seed: int
    status: str
    accuracy_matrix: list[list[float]] = field(default_factory=list)
    initial_accuracy: list[float] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    decisions: dict[str, dict[str, int]] = field(default_factory=dict)
    memory_bytes: int = 0
    #: Stored directions of methods that hold any, those of the layer that holds most.
    directions: int = 0
    #: Of the model.
    parameters: int = 0
    seconds: float = 0.0
    step_ms: float = 0.0
    steps: int = 0
    weights_sha256: str = ""
    warnings: list[str] = field(default_factory=list)
    error: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        write_json(folder / RECORD, asdict(self))


def load_record(folder: Path) -> Record:
    """The record of a run folder; a ValueError that names the file when it cannot be one."""
    path = folder / RECORD
    try:
        return Record(**json.loads(path.read_text()))
    except (json.JSONDecodeError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} must be the record of a run, but reading it failed: {error}") from error


def describe(dataset: Dataset) -> dict[str, Any]:
    """Which data the numbers are from: results on a part of it are never to be read as results on all of it."""
    return {
        "name": dataset.name,
        "train": len(dataset.train_labels),
        "test": len(dataset.test_labels),
        "complete": dataset.complete,
        "embedded": dataset.embedded,
    }


def weights_digest(model: nn.Module) -> str:
    """A fingerprint of all parameters and buffers: equal for equal weights, bit for bit."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def versions(device: str) -> dict[str, str]:
    """What the numbers were made with."""
    gpu = {"gpu": torch.cuda.get_device_name(device)} if device.startswith("cuda") else {}
    return {
        "sfao": version("sfao"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "device": device,
        "threads": str(torch.get_num_threads()),
        **gpu,
    }
