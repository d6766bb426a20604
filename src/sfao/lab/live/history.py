"""The telemetry of a run in a bounded number of buckets, however long steps.jsonl is."""

import os
from collections.abc import Mapping
from itertools import zip_longest
from math import isfinite
from pathlib import Path
from typing import Any, BinaryIO

from sfao.lab.console import escape_controls
from sfao.lab.safe_io import MAX_LINE, check_length, open_file

DECISIONS = ("accept", "project", "discard", "zero")
MEANS = ("kept", "drift", "cosine")
#: Neighbors are merged when there are twice as many buckets.
MAX_BUCKETS = 80


class LineReader:
    """Reads the lines that a growing file has gained.

    A rollback cuts steps.jsonl and writes other lines; then the last line that was read is no longer in its place.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._place, self._last = path, 0, b""

    def read(self) -> tuple[list[bytes], bool]:
        """Return the next whole lines, and if they replace all lines before them.

        Raises an InputError for a line that is longer than what is read at once.
        """
        try:
            file = open_file(self._path, os.O_RDONLY)
        except FileNotFoundError:
            was_cut, self._place, self._last = self._place > 0, 0, b""
            return [], was_cut
        with file:
            was_cut = not self._has_last(file)
            if was_cut:
                self._place, self._last = 0, b""
            file.seek(self._place)
            data = file.read(MAX_LINE + 1)
        lines = [line + b"\n" for line in data.split(b"\n")[:-1]]
        if lines:
            self._place, self._last = self._place + sum(map(len, lines)), lines[-1]
        else:
            check_length(len(data), MAX_LINE)
        return lines, was_cut

    def _has_last(self, file: BinaryIO) -> bool:
        file.seek(self._place - len(self._last))
        return file.read(len(self._last)) == self._last


def downsample(lines: list[bytes], max_bytes: int) -> list[bytes]:
    """Return evenly spaced lines of about so many bytes in all, the last one included."""
    size = sum(map(len, lines))
    if size <= max_bytes:
        return lines
    count = max(1, len(lines) * max_bytes // size)
    return [lines[(number + 1) * len(lines) // count - 1] for number in range(count)]


class Mean:
    """The mean of finite numbers."""

    def __init__(self, *values: float) -> None:
        finite = [float(value) for value in values if isfinite(value)]
        self.total, self.count = sum(finite), len(finite)

    def add(self, other: "Mean") -> None:
        self.total, self.count = self.total + other.total, self.count + other.count

    @property
    def value(self) -> float | None:
        """The mean with the digits that the page shows; None without numbers."""
        return float(f"{self.total / self.count:.4g}") if self.count else None


class LayerBucket:
    """A layer in a bucket: the decisions of its gate so far, 0 without a gate, and means of its telemetry."""

    def __init__(self, counts: Mapping[str, Any] | None = None, telemetry: Mapping[str, Any] | None = None) -> None:
        known = dict(telemetry or {})
        if known.get("allowed"):  # the drift of a bound is a share of what is allowed
            known["drift"] = known["drift"] / known["allowed"]
        self.is_known = counts is not None or bool(known)
        self.counts = [0 if counts is None else _read_count(counts[name]) for name in DECISIONS]
        self.means = [Mean(known[name]) if name in known else Mean() for name in MEANS]

    def add(self, later: "LayerBucket") -> None:
        if later.is_known:
            self.is_known, self.counts = True, later.counts
        for mean, other in zip(self.means, later.means, strict=True):
            mean.add(other)

    def as_json(self) -> list[Any] | None:
        return [*self.counts, *(mean.value for mean in self.means)] if self.is_known else None


class Bucket:
    """Neighboring lines of steps.jsonl: the place of the last one, and the mean of each number."""

    def __init__(self, line: Mapping[str, Any], names: list[str]) -> None:
        self.step, self.task, self.epoch = (_read_count(line[name]) for name in ("step", "task", "epoch"))
        self.lines, self.loss = 1, Mean(line["loss"])
        self.layers = [LayerBucket(line["decisions"].get(name), line["gate"].get(name)) for name in names]

    def add(self, later: "Bucket") -> None:
        self.step, self.task, self.epoch = later.step, later.task, later.epoch
        self.lines += later.lines
        self.loss.add(later.loss)
        pairs = list(zip_longest(self.layers, later.layers))
        self.layers = [own or LayerBucket() for own, _ in pairs]
        for own, (_, other) in zip(self.layers, pairs, strict=True):
            if other is not None:
                own.add(other)

    def as_json(self) -> list[Any]:
        return [self.step, self.task, self.epoch, self.loss.value, [layer.as_json() for layer in self.layers]]


class History:
    """Buckets of equally many lines; the last one is still filled."""

    def __init__(self) -> None:
        self.layers: list[str] = []
        #: The last step before each new task.
        self.task_ends: list[int] = []
        self.buckets: list[Bucket] = []
        self._last = (0, 0)
        self._lines_per_bucket = 1

    def add(self, line: Mapping[str, Any]) -> None:
        """Add a line of steps.jsonl; raise a KeyError, TypeError or ValueError for an invalid one."""
        names = list(dict.fromkeys((*self.layers, *line["decisions"], *line["gate"])))
        bucket = Bucket(line, names)
        if self.buckets and bucket.task != self._last[1]:
            self.task_ends.append(self._last[0])
        self.layers, self._last = names, (bucket.step, bucket.task)
        if self.buckets and self.buckets[-1].lines < self._lines_per_bucket:
            self.buckets[-1].add(bucket)
        else:
            self.buckets.append(bucket)
        if len(self.buckets) == 2 * MAX_BUCKETS:
            self._lines_per_bucket *= 2
            for first, second in zip(self.buckets[::2], self.buckets[1::2], strict=True):
                first.add(second)
            self.buckets = self.buckets[::2]

    def as_json(self) -> dict[str, Any]:
        """Return plain containers for the page."""
        names = [escape_controls(name) for name in self.layers]
        return {"layers": names, "taskEnds": self.task_ends, "buckets": [bucket.as_json() for bucket in self.buckets]}


def _read_count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"must be a count, got {value!r}")
    return value
