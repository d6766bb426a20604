"""Learning without forgetting (Li and Hoiem 2016): outputs on new data stay those of the model before the task.

With p the softmax of the model's outputs at temperature T and p* that of a copy from before the task, the loss is

    cross-entropy + strength T^2 KL(p* || p)    summed over the outputs of past tasks.
"""

from copy import deepcopy
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax

from sfao.lab.methods.method import Method, MethodOptions, Training
from sfao.lab.methods.search_range import Range, SearchSpace
from sfao.lab.streams.stream import Task


def distillation_loss(logits: Tensor, before: Tensor, temperature: float) -> Tensor:
    """Return T^2 KL(p* || p), whose gradient is as long as at temperature 1."""
    now, then = (log_softmax(each / temperature, 1) for each in (logits, before))
    return temperature**2 * kl_div(now, then, reduction="batchmean", log_target=True)


class LwFOptions(MethodOptions):
    strength: float = Field(1.0, ge=0, description="Weight of the distillation loss; 1 in the paper.")
    temperature: float = Field(2.0, gt=0, description="Logits are divided by this; 2 in the paper.")


class LwF(Method):
    """Keeps a copy of the model from the end of the last task, and no data; outputs that no past task used are free."""

    name = "lwf"
    Options = LwFOptions
    options: LwFOptions
    search_space: ClassVar[SearchSpace] = {"strength": Range(0.1, 10, log=True), "temperature": Range(1, 4)}
    saved: ClassVar[tuple[str, ...]] = ("past_outputs",)

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        super().__init__(model, training, options)
        self.before: nn.Module | None = None
        #: The outputs of past tasks, first and last + 1, each once.
        self.past_outputs: list[tuple[int, int]] = []

    def loss(self, inputs: Tensor, targets: Tensor, outputs: slice) -> Tensor:
        logits: Tensor = self.model(inputs)
        loss = cross_entropy(logits[:, outputs], targets)
        if self.before is not None:
            with torch.no_grad():
                before = self.before(inputs)
            for first, end in self.past_outputs:
                old = distillation_loss(logits[:, first:end], before[:, first:end], self.options.temperature)
                loss = loss + self.options.strength * old
        return loss

    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        super().end_task(number, task, generator)
        if (used := (task.outputs.start, task.outputs.stop)) not in self.past_outputs:
            self.past_outputs.append(used)
        self._copy(self.model.state_dict())

    def _copy(self, weights: dict[str, Tensor]) -> None:
        if self.before is None:
            self.before = deepcopy(self.model).eval().requires_grad_(False)
        self.before.load_state_dict(weights)

    @property
    def memory_bytes(self) -> int:
        return 0 if self.before is None else sum(tensor.nbytes for tensor in self.before.state_dict().values())

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "before": None if self.before is None else self.before.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        if state["before"] is None:
            self.before = None
        else:
            self._copy(state["before"])
