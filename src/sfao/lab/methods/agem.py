"""Averaged gradient episodic memory (Chaudhry et al. 2019): no step may raise the mean loss on stored examples.

With g the gradient and r that of some stored examples, g - (g . r) / (r . r) r replaces g where g . r < 0.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field
from torch import Tensor, nn

from sfao.lab.methods.episodic_method import EpisodicMethod, EpisodicOptions, flat_gradient
from sfao.lab.methods.method import MethodOptions, Training
from sfao.lab.methods.search_range import Range, SearchSpace
from sfao.lab.streams.seeding import make_generator


def correct(gradient: Tensor, reference: Tensor) -> Tensor:
    """Return the gradient itself if it does not point against the reference, else the nearest vector that does not."""
    dot = gradient @ reference
    if dot >= 0:
        return gradient
    return gradient - dot / (reference @ reference) * reference


class AGEMOptions(EpisodicOptions):
    examples: int = Field(250, ge=1, description="Examples stored per task, drawn uniformly at its end.")
    batch: int | None = Field(
        None, ge=1, description="Stored examples drawn for the reference gradient of a step; null: the batch size."
    )


class AGEM(EpisodicMethod):
    name = "agem"
    Options = AGEMOptions
    options: AGEMOptions
    search_space: ClassVar[SearchSpace] = {"examples": Range(50, 500, log=True), "batch": Range(8, 128, log=True)}

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        super().__init__(model, training, options)
        self.generator = make_generator(training.seed, "a-gem")

    def correct(self, gradient: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        drawn = self.memory.draw(self.options.batch or self.training.batch_size, self.generator, self.device)
        return correct(gradient, flat_gradient(drawn.loss(self.model), parameters))

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.generator.set_state(state["generator"].cpu())
