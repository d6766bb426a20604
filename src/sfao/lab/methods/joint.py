"""All tasks so far, trained together: the accuracy without forgetting."""

from typing import ClassVar

import torch
from torch import nn

from sfao.lab.methods.method import Method, MethodOptions, Training
from sfao.lab.streams.stream import Task


class Joint(Method):
    """Trains on every task so far at each new task. It stores all data, so it is a bound and no competitor."""

    name = "joint"
    trains_on_all_tasks = True
    stores_data = True
    saved: ClassVar[tuple[str, ...]] = ("data_bytes",)

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        super().__init__(model, training, options)
        self.data_bytes = 0

    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        super().end_task(number, task, generator)
        self.data_bytes += task.train.bytes

    @property
    def memory_bytes(self) -> int:
        """The training images and labels of all tasks learned so far, which every later task is trained on."""
        return self.data_bytes
