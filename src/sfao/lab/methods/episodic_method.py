"""The common part of A-GEM and GEM: gradients that point against those of stored examples are corrected."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from sfao.decision import COUNTED
from sfao.lab.methods.method import Method, MethodOptions, Training
from sfao.lab.methods.replay_buffer import EpisodicMemory
from sfao.lab.streams.stream import Task


class EpisodicOptions(MethodOptions):
    examples: int = Field(ge=1, description="Examples stored per task, drawn uniformly at its end.")


class EpisodicMethod(Method):
    """A method that stores examples of past tasks and corrects gradients that point against theirs.

    Stored examples pass through the model in training mode, like the batch whose gradient theirs are compared with,
    so they move BatchNorm's running statistics too. The optimizer gets corrected gradients.
    """

    options: EpisodicOptions
    stores_data = True
    saved: ClassVar[tuple[str, ...]] = ("counts",)

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        super().__init__(model, training, options)
        self.memory = EpisodicMemory()
        self.counts = dict.fromkeys(COUNTED, 0)

    def correct(self, gradient: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Return the gradient itself if it agrees with the stored examples, else its replacement."""
        raise NotImplementedError

    def update(self, outputs: slice) -> None:
        decision = "accept"
        if len(self.memory):
            parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
            gradient = flatten([parameter.grad for parameter in parameters], parameters)
            corrected = self.correct(gradient, parameters)
            if corrected is not gradient:
                decision = "project"
                parts = corrected.split([parameter.numel() for parameter in parameters])
                for parameter, part in zip(parameters, parts, strict=True):
                    if parameter.grad is not None:
                        parameter.grad.copy_(part.view_as(parameter))
        self.counts[decision] += 1
        super().update(outputs)

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
        return [] if self.counts["project"] else [f"{self.name}: no step ever went against the stored examples"]

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "memory": self.memory.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.memory.load_state_dict(state["memory"])


def flatten(gradients: Sequence[Tensor | None], parameters: Sequence[Tensor]) -> Tensor:
    """Return one vector of all gradients, zero where a parameter has none."""
    pairs = zip(gradients, parameters, strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in pairs])


def flat_gradient(value: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Return the gradient of a scalar as one vector; `.grad` is not touched."""
    return flatten(torch.autograd.grad(value, parameters, allow_unused=True), parameters)
