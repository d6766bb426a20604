"""What wandb leaves offline, read back: its files are logs in LevelDB's form, of one protocol buffer per record."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wandb.proto.wandb_internal_pb2 import Record

BLOCK, FILE_HEADER, HEADER = 32768, 7, 7
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def read_history(folder: Path) -> list[dict[str, float]]:
    """The rows that were logged to a folder, over all its offline runs, without wandb's own columns."""
    rows = []
    for record in read_runs(folder):
        if record.WhichOneof("record_type") == "history":
            items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
            rows.append({key: json.loads(value) for key, value in items.items() if not key.startswith("_")})
    return rows


def has_ended(folder: Path) -> bool:
    """Whether all offline runs of a folder are written to their end, which a run is soon after it was finished."""
    ends = sum(record.WhichOneof("record_type") == "exit" for record in read_runs(folder))
    return ends == len(list(folder.glob("wandb/offline-run-*/*.wandb")))


def read_runs(folder: Path) -> "Iterator[Record]":
    from wandb.proto.wandb_internal_pb2 import Record

    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        yield from map(Record.FromString, read_records(file.read_bytes()))


def read_records(data: bytes) -> Iterator[bytes]:
    """The records of a file; one that a killed process left unfinished is not among them."""
    at, parts = FILE_HEADER, []
    while at + HEADER <= len(data):
        left = BLOCK - at % BLOCK
        if left < HEADER:
            at += left
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        part = data[at + HEADER : at + HEADER + length]
        parts = [*parts, part] if kind in (MIDDLE, LAST) else [part]
        at += HEADER + length
        if kind in (FULL, LAST) and at <= len(data):
            yield b"".join(parts)
