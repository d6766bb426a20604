"""Experience replay (Riemer et al. 2019; Chaudhry et al. 2019): stored examples are learned beside every batch.

The loss is the mean cross-entropy over the batch and as many stored examples, from one pass through the model.
"""

from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from sfao.lab.methods.method import Method, MethodOptions, Training
from sfao.lab.methods.replay_buffer import Examples, Reservoir
from sfao.lab.methods.search_range import Range, SearchSpace
from sfao.lab.streams.seeding import make_generator


class ReplayOptions(MethodOptions):
    examples: int = Field(
        500, ge=1, description="Examples stored in total, of whatever task: a uniform sample of those seen so far."
    )
    batch: int | None = Field(None, ge=1, description="Stored examples beside each batch; null: the batch size.")


class ER(Method):
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
        """The number of stored examples beside a batch."""
        return self.options.batch or self.training.batch_size

    def step(self, inputs: Tensor, targets: Tensor, outputs: slice) -> Tensor:
        loss = super().step(inputs, targets, outputs)
        self.memory.add(inputs, targets, outputs)
        return loss

    def loss(self, inputs: Tensor, targets: Tensor, outputs: slice) -> Tensor:
        bounds = [(outputs.start, outputs.stop)] * len(targets)
        if not len(self.memory):
            return Examples(inputs, targets, bounds).loss(self.model)
        past = self.memory.draw(self.replayed)
        joined = torch.cat([inputs, past.inputs]), torch.cat([targets, past.targets])
        return Examples(*joined, bounds + past.outputs).loss(self.model)

    @property
    def memory_bytes(self) -> int:
        return self.memory.bytes

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "memory": self.memory.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.memory.load_state_dict(state["memory"], self.device)
