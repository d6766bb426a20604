"""Experience replay (Riemer et al. 2019; Chaudhry et al. 2019): stored examples are learnt beside every batch."""

from typing import Any, ClassVar

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from sfao.lab.methods.episodic_memory import Examples
from sfao.lab.methods.method import Method, MethodOptions, Training
from sfao.lab.methods.reservoir import Reservoir
from sfao.lab.methods.search_range import Range, SearchSpace
from sfao.lab.streams.seeding import make_generator


class ReplayOptions(MethodOptions):
    #: Examples stored in all, of whatever task: a uniform sample of those seen so far.
    examples: PositiveInt = 500
    #: Stored examples beside each batch; by default as many as the batch size.
    batch: PositiveInt | None = None


class ER(Method):
    """The loss is the mean over the batch and as many stored examples, from one pass through the model."""

    name = "er"
    Options: ClassVar[type[MethodOptions]] = ReplayOptions
    options: ReplayOptions
    stores_data = True
    search_space: ClassVar[SearchSpace] = {"examples": Range(100, 5000, log=True), "batch": Range(8, 128, log=True)}

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        super().__init__(model, training, options)
        self.memory = Reservoir(self.options.examples, make_generator(training.seed, "replay"))

    @property
    def replayed(self) -> int:
        """How many stored examples go with a batch."""
        return self.options.batch or self.training.batch_size

    def step(self, inputs: Tensor, targets: Tensor, outputs: slice) -> Tensor:
        self.optimizer.zero_grad()
        together = Examples(inputs, targets, [outputs] * len(targets))
        loss = (_join(together, self.memory.draw(self.replayed)) if len(self.memory) else together).loss(self.model)
        loss.backward()
        self.optimizer.step()
        self.memory.add(inputs, targets, outputs)
        return loss.detach()

    @property
    def memory_bytes(self) -> int:
        return self.memory.bytes

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "memory": self.memory.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.memory.load_state_dict(state["memory"], self.device)


def _join(one: Examples, other: Examples) -> Examples:
    return Examples(
        torch.cat([one.inputs, other.inputs]), torch.cat([one.targets, other.targets]), one.outputs + other.outputs
    )
