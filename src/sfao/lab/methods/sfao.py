"""Selective forgetting-aware optimization, the paper's method: gradients are accepted, projected or discarded."""

from collections.abc import Iterable
from itertools import islice
from typing import Any, ClassVar, Self

import torch
from pydantic import create_model, model_validator
from torch import nn
from torch.nn.functional import cross_entropy

from sfao.checks import check_choice, check_count
from sfao.consolidation import UNITS
from sfao.lab.methods.gated_method import GatedMethod, leave_warnings_to_concerns
from sfao.lab.methods.method import MethodOptions, Training
from sfao.lab.methods.search_range import Choice, Range, SearchSpace
from sfao.lab.methods.task_view import TaskView
from sfao.lab.streams.labelled_images import Batch
from sfao.lab.streams.stream import Task
from sfao.optimizer import SFAO
from sfao.options import GRANULARITIES, OPTIONS, complete_options

#: The options of :class:`sfao.Gate`, with the same names and defaults.
_FIELDS: dict[str, Any] = {name: (type(default), default) for name, default in OPTIONS.items()}
GateFields = create_model("GateFields", __base__=MethodOptions, **_FIELDS)


class SFAOOptions(GateFields):  # type: ignore[misc, valid-type]
    """The options of :class:`sfao.Gate` and of its `consolidate`, with the same defaults and the same rules."""

    granularity: str = GRANULARITIES[0]
    target: str = "loss"
    per: str | None = None
    limit: int | None = None

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: Any) -> Any:
        """Fill in the options of the gate by its own rules."""
        return {**given, **complete_options(given)} if isinstance(given, dict) else given

    @model_validator(mode="after")
    def _check_others(self) -> Self:
        check_choice("granularity", self.granularity, GRANULARITIES)
        check_choice("target", self.target, tuple(UNITS))
        if self.per is not None:
            check_choice("per", self.per, tuple(UNITS.values()))
        if self.limit is not None:
            check_count("limit", self.limit)
        return self

    def of_gate(self) -> dict[str, Any]:
        """Return the options of the gate's layers."""
        return {name: getattr(self, name) for name in OPTIONS}


class SFAOMethod(GatedMethod):
    """The library's optimizer, with directions stored from the training part of every task."""

    name = "sfao"
    Options = SFAOOptions
    options: SFAOOptions
    search_space: ClassVar[SearchSpace] = {"accept_above": Range(0.2, 0.95), "target": Choice(("loss", "logit"))}

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        super().__init__(model, training, options)
        #: Decisions up to the end of the first task, while there was nothing to compare with.
        self.first_decisions: dict[str, dict[str, int]] = {}

    def make_optimizer(self) -> SFAO:
        return SFAO(
            self.model,
            **self.descent(),
            seed=self.training.seed,
            granularity=self.options.granularity,
            **self.options.of_gate(),
        )

    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        with leave_warnings_to_concerns():
            self.optimizer.consolidate(
                self._choose_batches(task, generator),
                cross_entropy,
                model=TaskView(self.model, task.outputs),
                target=self.options.target,
                per=self.options.per,
                limit=self.options.limit,
            )
        self.first_decisions = self.first_decisions or self.decisions

    def _choose_batches(self, task: Task, generator: torch.Generator) -> Iterable[Batch]:
        """Return the batches to consolidate: a pass over the task, of which no more is built than is used.

        Single examples are drawn here, as the first batch of a shuffled pass.
        """
        if (self.options.per or UNITS[self.options.target]) == "batch":
            return task.train.as_sequence(self.training.batch_size, generator, self.device)
        return islice(self.batches(task, generator, self.options.limit or self.options.capacity), 1)

    def concerns(self) -> list[str]:
        return [*self._concerns_about_decisions(), *self._concerns_about_memory()]

    def _concerns_about_decisions(self) -> list[str]:
        later = {layer: _difference(self.decisions[layer], first) for layer, first in self.first_decisions.items()}
        gated = {layer: counts for layer, counts in later.items() if _count_decisions(counts)}
        if gated and all(counts["accept"] == _count_decisions(counts) for counts in gated.values()):
            return [
                f"{self.name}: every gradient after the first task was accepted, so every update was that of sgd; "
                f"`accept_above` is {self.options.accept_above:g}"
            ]
        stuck = [layer for layer, counts in gated.items() if counts["discard"] == _count_decisions(counts)]
        if stuck:
            return [
                f"{self.name}: every gradient of {_name_layers(stuck)} after the first task was discarded, "
                f"so nothing more was learnt there; `discard_below` is {self.options.discard_below:g}"
            ]
        return []

    def _concerns_about_memory(self) -> list[str]:
        return [
            f"{self.name}: the memory of {_name_layers([name])} spans all its parameters, so a projection leaves "
            f"nothing to learn; `capacity` is {self.options.capacity}"
            for name in self.find_spanned()
        ]

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "first_decisions": self.first_decisions}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.first_decisions = {layer: dict(counts) for layer, counts in state["first_decisions"].items()}


def _difference(counts: dict[str, int], earlier: dict[str, int]) -> dict[str, int]:
    return {name: count - earlier[name] for name, count in counts.items()}


def _count_decisions(counts: dict[str, int]) -> int:
    return sum(count for name, count in counts.items() if name != "zero")


def _name_layers(layers: list[str]) -> str:
    return f"layer{'s' if len(layers) > 1 else ''} {', '.join(map(repr, layers))}"
