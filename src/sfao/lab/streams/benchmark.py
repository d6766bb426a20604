"""The form of a benchmark: a data set, the way it is cut into tasks, and the settings of a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sfao.lab.data.dataset import Dataset, load_dataset
from sfao.lab.data.sets import get_description
from sfao.lab.streams.stream import Stream


class StreamMaker(Protocol):
    """A function that cuts a data set into tasks."""

    def __call__(
        self,
        dataset: Dataset,
        *,
        tasks: int | None,
        scenario: str,
        seed: int,
        order: str | Sequence[int] | None,
        validation: float,
    ) -> Stream: ...


@dataclass(frozen=True)
class Cut:
    """A way to cut a data set into tasks, and its name for people."""

    name: str
    make: StreamMaker


@dataclass(frozen=True)
class Benchmark:
    """A data set by name, cut into a number of tasks."""

    dataset: str
    cut: Cut
    #: None where the data tell it.
    tasks: int | None
    #: The configuration of a run, where nothing else is given; it names at least the model.
    settings: dict[str, Any]

    def load(self, data_root: Path | None = None) -> Dataset:
        """Return the data, from `data_root` where they are files of a publisher."""
        return load_dataset(self.dataset, data_root)

    def count_training_examples(self) -> int:
        return get_description(self.dataset).train
