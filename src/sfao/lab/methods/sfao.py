r"""Selective forgetting-aware optimization, the paper's method: gradients are accepted, projected or discarded.

Per layer, with gradient g, stored directions B of past gradients, and s the largest cosine of g with some of them,

    u = g                   if s > accept_above
        g - P_span(B) g     if s > discard_below
        0                   otherwise

takes the place of the gradient in the step of the optimizer: see :class:`sfao.SFAO` and :class:`sfao.Gate`.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import nn
from torch.nn.functional import cross_entropy

from sfao.consolidation import UNITS
from sfao.lab.methods.gated_method import GatedMethod
from sfao.lab.methods.method import MethodOptions, TaskView, Training
from sfao.lab.methods.search_range import Choice, Range, SearchSpace
from sfao.lab.streams.labelled_images import Batch
from sfao.lab.streams.stream import Task
from sfao.options import OPTIONS, complete_options


def gate_field(name: str, description: str) -> Any:
    """Return a field with the default of an option of :class:`sfao.Gate`."""
    return Field(OPTIONS[name], description=description)


class SFAOOptions(MethodOptions):
    """The options of :class:`sfao.Gate` and of its `consolidate`, with the same defaults and the same rules."""

    accept_above: float = gate_field("accept_above", "A gradient is accepted above this cosine; -1 always accepts.")
    discard_below: float = gate_field("discard_below", "A gradient is discarded up to this cosine; -1 never discards.")
    strict: bool = gate_field("strict", "Accept only if the smallest sampled cosine isn't negative either.")
    samples: int = gate_field("samples", "Directions that a gradient is compared with at each step.")
    cosine: str = gate_field("cosine", "`signed`, or `absolute` as in the paper's released code.")
    projection: str = gate_field("projection", "Off the `span`, onto the `cone`, or `sequential` (the released code).")
    capacity: int = gate_field("capacity", "Directions stored per layer.")
    admit_below: float = gate_field("admit_below", "Store a direction if its largest cosine with others is below this.")
    min_norm: float = gate_field("min_norm", "Gradients shorter than this are never stored.")
    eviction: str = gate_field("eviction", "What a full memory replaces: `balanced`, `fifo` or `reservoir`.")
    storage: str = gate_field("storage", "`dense` directions, or `factored` into matrices of low rank.")
    rank: int = gate_field("rank", "The rank of factored directions.")
    memory_dtype: str = gate_field("memory_dtype", "`float32` or `bfloat16`.")
    granularity: Literal["layer", "global"] = Field(
        "layer", description="One gate per `layer`, or a `global` one for the model."
    )
    target: Literal["loss", "logit"] = Field(
        "loss", description="Store gradients of the `loss`, or of the true class's `logit`."
    )
    per: Literal["batch", "example"] | None = Field(
        None, description="One gradient for each `batch` or `example`; null: batches for losses, examples for logits."
    )
    limit: int | None = Field(None, ge=1, description="Gradients stored per task at most; null: as many as fit.")

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:
        """Fill in the options of the gate by its own rules."""
        return {**given, **complete_options(given)} if isinstance(given, dict) else given


class SFAOMethod(GatedMethod):
    """The library's gate, with directions stored from the training part of every task."""

    name = "sfao"
    Options = SFAOOptions
    options: SFAOOptions
    search_space: ClassVar[SearchSpace] = {"accept_above": Range(0.2, 0.95), "target": Choice(("loss", "logit"))}

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        super().__init__(model, training, options)
        #: Decisions up to the end of the first task, while there was nothing to compare with.
        self.first_decisions: dict[str, dict[str, int]] = {}

    def gate_options(self) -> dict[str, Any]:
        return {name: getattr(self.options, name) for name in ("granularity", *OPTIONS)}

    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        self.consolidate(
            self._choose_batches(task, generator),
            cross_entropy,
            model=TaskView(self.model, task.outputs),
            target=self.options.target,
            per=self.options.per,
            limit=self.options.limit,
        )
        self.first_decisions = self.first_decisions or self.decisions
        super().end_task(number, task, generator)

    def _choose_batches(self, task: Task, generator: torch.Generator) -> Iterable[Batch]:
        """Return the batches to consolidate: a pass over the task, of which no more is built than is used.

        Single examples are drawn here, as the first batch of a shuffled pass.
        """
        if (self.options.per or UNITS[self.options.target]) == "batch":
            return task.train.as_sequence(self.training.batch_size, generator, self.device)
        return islice(self.batches(task, generator, self.options.limit or self.options.capacity), 1)

    def concerns(self) -> list[str]:
        later = {
            layer: {name: count - first[name] for name, count in self.decisions[layer].items() if name != "zero"}
            for layer, first in self.first_decisions.items()
        }
        gated = {layer: counts for layer, counts in later.items() if sum(counts.values())}
        found = [
            f"{self.name}: the memory of layer {name!r} spans all its parameters, so a projection leaves nothing to "
            f"learn; `capacity` is {self.options.capacity}"
            for name in self.spanned_layers()
        ]
        if gated and all(counts["accept"] == sum(counts.values()) for counts in gated.values()):
            found.append(
                f"{self.name}: every gradient after the first task was accepted, so the gate had no effect; "
                f"`accept_above` is {self.options.accept_above:g}"
            )
        stuck = [layer for layer, counts in gated.items() if counts["discard"] == sum(counts.values())]
        if stuck:
            found.append(
                f"{self.name}: every gradient of {', '.join(map(repr, stuck))} after the first task was discarded, "
                f"so nothing more was learned there; `discard_below` is {self.options.discard_below:g}"
            )
        return found

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "first_decisions": self.first_decisions}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.first_decisions = state["first_decisions"]
