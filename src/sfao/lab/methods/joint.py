"""All tasks so far, together: what a method without forgetting could reach."""

from typing import Any

import torch
from torch import nn

from sfao.lab.methods.method import Method, MethodOptions, Training
from sfao.lab.streams.stream import Task


class Joint(Method):
    """Trains on every task so far at each new task; it stores all data, so it is a bound and no competitor."""

    name = "joint"
    trains_on_all_tasks = True
    stores_data = True

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        super().__init__(model, training, options)
        #: None where a checkpoint of an older version did not tell.
        self.data_bytes: int | None = 0

    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        super().end_task(number, task, generator)
        if self.data_bytes is not None:
            self.data_bytes += task.train.bytes

    @property
    def memory_bytes(self) -> int:
        """The training images and labels of all tasks learnt so far, which every later task goes back to."""
        return self.data_bytes or 0

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "data_bytes": self.data_bytes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.data_bytes = state.get("data_bytes")
