"""DriftBound: every layer's outputs on past inputs stay within a tolerance of what they were.

With W* a layer's weights at the end of the last of t tasks, and x its inputs in them, its weights W are kept in

    E |(W - W*) x|^2 <= tolerance^2 / t  E |W* x|^2

whatever the optimizer: see :class:`sfao.DriftBound`.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sfao.decision import NonFiniteGradient
from sfao.drift_bound import DEFAULTS, DriftBound
from sfao.lab.methods.method import Method, MethodOptions, Training
from sfao.lab.methods.search_range import Range, SearchSpace
from sfao.lab.streams.stream import Task

#: Examples of a finished task that go through the model together.
BATCH = 64
#: The start of the warning that names parameters without a bound.
UNBOUNDED = "these parameters can't be bounded"


class DriftBoundOptions(MethodOptions):
    """The options of :class:`sfao.DriftBound`, with the same defaults."""

    tolerance: float = Field(
        DEFAULTS["tolerance"], gt=0, le=1, description="Allowed drift of a layer's outputs, relative to their size."
    )
    every: int = Field(DEFAULTS["every"], ge=1, description="Steps between projections.")
    energy: float = Field(
        DEFAULTS["energy"], gt=0, le=1, description="Share of the trace of the input moments that is stored as axes."
    )
    examples: int = Field(DEFAULTS["examples"], ge=1, description="Examples of a finished task that are run.")
    clip: float | None = Field(
        DEFAULTS["clip"],
        gt=0,
        description="Largest norm of a unit's gradient, relative to its weights, in models with BatchNorm; "
        "null: no clipping.",
    )


class DriftBoundMethod(Method):
    """The library's bound, attached behind any optimizer."""

    name = "drift-bound"
    Options = DriftBoundOptions
    options: DriftBoundOptions
    search_space: ClassVar[SearchSpace] = {"tolerance": Range(0.03, 0.5, log=True)}

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        super().__init__(model, training, options)
        self.bound = DriftBound(model, **self.options.model_dump(), seed=training.seed).attach(self.optimizer)
        #: The warning about parameters without a bound, empty if there are none.
        self.unbounded = ""

    def step(self, inputs: Tensor, targets: Tensor, outputs: slice) -> Tensor:
        with self._raise_divergence():
            return super().step(inputs, targets, outputs)

    @contextmanager
    def model_for_task(self, number: int) -> Iterator[nn.Module]:
        with self._raise_divergence():  # the bound projects and checks the weights before they are evaluated
            yield self.model

    @contextmanager
    def _raise_divergence(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if all(bool(parameter.isfinite().all()) for parameter in self.model.parameters()):
                raise
            raise NonFiniteGradient(str(error)) from error

    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        def loss(logits: Tensor, targets: Tensor) -> Tensor:
            return cross_entropy(logits[:, task.outputs], targets)

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.bound.consolidate(self.batches(task, generator, BATCH), loss)
        for warning in caught:
            if str(warning.message).startswith(UNBOUNDED):
                self.unbounded = str(warning.message)
            else:
                warnings.warn(warning.message, warning.category, stacklevel=2)
        super().end_task(number, task, generator)

    @property
    def can_checkpoint(self) -> bool:
        """True if no step has been taken since the last projection: saving projects, which would change the run."""
        return self.bound.is_projected

    @property
    def memory_bytes(self) -> int:
        return self.bound.memory_bytes

    @property
    def layer_telemetry(self) -> dict[str, dict[str, float]]:
        found: dict[str, dict[str, float]] = {}
        for key, value in self.bound.telemetry().items():
            if key.startswith("layers/"):
                layer, name = key.removeprefix("layers/").rsplit("/", 1)
                found.setdefault(layer, {})[name] = value
        return found

    def concerns(self) -> list[str]:
        found = [f"{self.name}: {self.unbounded}"] if self.unbounded else []
        if self.bound.tasks > 1 and not self.bound.telemetry()["acted"]:
            found.append(
                f"{self.name}: no layer ever exceeded its allowed drift; `tolerance` is {self.options.tolerance:g}"
            )
        return found

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "unbounded": self.unbounded}  # the optimizer's state holds the memory

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.unbounded = state["unbounded"]
