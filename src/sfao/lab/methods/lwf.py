"""Learning without forgetting (Li and Hoiem 2016): new data should be answered as the model did before the task."""

from copy import deepcopy
from typing import Any, ClassVar

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor, nn
from torch.nn.functional import kl_div, log_softmax

from sfao.lab.methods.method import Method, MethodOptions, Training
from sfao.lab.methods.search_range import Range, SearchSpace
from sfao.lab.streams.stream import Task


def distil(logits: Tensor, before: Tensor, temperature: float) -> Tensor:
    """Return how far the softened answers are from those of before; its gradient is as long as at temperature 1."""
    now, then = (log_softmax(each / temperature, 1) for each in (logits, before))
    return temperature**2 * kl_div(now, then, reduction="batchmean", log_target=True)


class LwFOptions(MethodOptions):
    #: The weight of the old answers; 1 in the paper.
    strength: NonNegativeFloat = 1.0
    #: What logits are divided by; 2 in the paper.
    temperature: PositiveFloat = 2.0


class LwF(Method):
    """Keeps the model as it was when the last task ended, and no data; outputs that no past task used are free."""

    name = "lwf"
    Options = LwFOptions
    options: LwFOptions
    search_space: ClassVar[SearchSpace] = {"strength": Range(0.1, 10, log=True), "temperature": Range(1, 4)}

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        super().__init__(model, training, options)
        self.before: nn.Module | None = None
        #: The outputs of past tasks, each once.
        self.past_outputs: list[slice] = []

    def step(self, inputs: Tensor, targets: Tensor, outputs: slice) -> Tensor:
        self.optimizer.zero_grad()
        logits: Tensor = self.model(inputs)
        loss = nn.functional.cross_entropy(logits[:, outputs], targets)
        if self.before is not None:
            with torch.no_grad():
                answered = self.before(inputs)
            for past in self.past_outputs:
                old = distil(logits[:, past], answered[:, past], self.options.temperature)
                loss = loss + self.options.strength * old
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        super().end_task(number, task, generator)
        if task.outputs not in self.past_outputs:
            self.past_outputs.append(task.outputs)
        self._keep(self.model.state_dict())

    def _keep(self, weights: dict[str, Tensor]) -> None:
        """Hold these weights, as the model that new answers are compared with."""
        if self.before is None:
            self.before = deepcopy(self.model).eval().requires_grad_(False)
        self.before.load_state_dict(weights)

    @property
    def memory_bytes(self) -> int:
        return 0 if self.before is None else sum(tensor.nbytes for tensor in self.before.state_dict().values())

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "before": None if self.before is None else self.before.state_dict(),
            "past_outputs": [[outputs.start, outputs.stop] for outputs in self.past_outputs],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.past_outputs = [slice(start, stop) for start, stop in state["past_outputs"]]
        if state["before"] is None:
            self.before = None
        else:
            self._keep(state["before"])
