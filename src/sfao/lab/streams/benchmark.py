"""The form of a benchmark: a data set, the way it is split into tasks, and the settings of a run."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfao.lab.data.dataset import Dataset, load_dataset
from sfao.lab.data.sets import get_description
from sfao.lab.streams.stream import Stream


@dataclass(frozen=True)
class TaskSplit:
    """A way to split a data set into tasks; `make` has the signature of `sfao.lab.streams.split.split`."""

    name: str
    make: Callable[..., Stream]


@dataclass(frozen=True)
class Benchmark:
    """A data set by name, split into a number of tasks."""

    dataset: str
    split: TaskSplit
    #: None if the data tell it.
    tasks: int | None
    #: The defaults of a run; they name at least the model.
    settings: dict[str, Any]

    def load(self, data_root: Path | None = None) -> Dataset:
        """Return the data, from `data_root` if they are files of a publisher."""
        return load_dataset(self.dataset, data_root)

    def make_stream(self, dataset: Dataset, *, tasks: int | None = None, **options: Any) -> Stream:
        """Return the tasks of a data set that was loaded; `options` are those of `split`."""
        return self.split.make(dataset, tasks=tasks or self.tasks, **options)

    def count_training_examples(self) -> int:
        return get_description(self.dataset).train
