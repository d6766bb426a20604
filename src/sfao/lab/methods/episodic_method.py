"""The common part of A-GEM and GEM: steps that go against stored examples are corrected."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from sfao.decision import COUNTED
from sfao.lab.methods.episodic_memory import EpisodicMemory
from sfao.lab.methods.flat_gradient import flatten_gradients, overwrite_gradients
from sfao.lab.methods.method import Method, MethodOptions, Training
from sfao.lab.streams.stream import Task


class EpisodicOptions(MethodOptions):
    #: Examples stored per task, drawn uniformly when it ends.
    examples: PositiveInt


class EpisodicMethod(Method):
    """A method that stores examples of past tasks and corrects gradients that go against theirs.

    Stored examples pass through the model in training mode, like the batch whose gradient theirs are compared with,
    so they move BatchNorm's running statistics too. Momentum averages corrected gradients.
    """

    options: EpisodicOptions
    stores_data = True

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        super().__init__(model, training, options)
        self.memory = EpisodicMemory()
        self.counts = dict.fromkeys(COUNTED, 0)

    @abstractmethod
    def correct(self, gradient: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Return the gradient itself if it agrees with the stored examples, else its replacement."""

    def step(self, inputs: Tensor, targets: Tensor, outputs: slice) -> Tensor:
        self.optimizer.zero_grad()
        loss = self.loss(inputs, targets, outputs)
        loss.backward()
        self.counts["project" if len(self.memory) and self._correct_gradients() else "accept"] += 1
        self.optimizer.step()
        return loss.detach()

    def _correct_gradients(self) -> bool:
        """Correct the gradients in place; tell whether that was necessary."""
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        gradient = flatten_gradients([parameter.grad for parameter in parameters], parameters)
        update = self.correct(gradient, parameters)
        if update is gradient:
            return False
        overwrite_gradients(parameters, update)
        return True

    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        super().end_task(number, task, generator)
        self.memory.add(task, self.options.examples, generator)

    @property
    def memory_bytes(self) -> int:
        return self.memory.bytes

    @property
    def decisions(self) -> dict[str, dict[str, int]]:
        return {"model": dict(self.counts)}

    def concerns(self) -> list[str]:
        if self.counts["project"]:
            return []
        return [f"{self.name}: no step ever went against the stored examples; every update equalled SGD's"]

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "memory": self.memory.state_dict(), "counts": dict(self.counts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.memory.load_state_dict(state["memory"])
        self.counts = dict(state["counts"])
