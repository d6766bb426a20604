"""SFAO in the laboratory: updates softened, or gated, by what is remembered of past tasks."""

from collections.abc import Iterable
from itertools import islice
from typing import Any, ClassVar, Self

import torch
from pydantic import create_model, model_validator
from torch import nn
from torch.nn.functional import cross_entropy

from sfao.checks import check_choice
from sfao.gating.budget import parse_bytes
from sfao.gating.memories import MEMORIES
from sfao.gating.options import DEFAULTS, OPTIONS_OF, check_options, choose_memory
from sfao.gating.storage import STORAGE_OPTIONS
from sfao.methods.gated_method import GatedMethod, leave_warnings_to_concerns
from sfao.methods.method import MethodOptions, Training
from sfao.methods.search_range import Range, SearchSpace
from sfao.methods.task_view import TaskView
from sfao.optim._consolidation.batches import check_arguments, choose_unit
from sfao.optim._consolidation.inputs import EXAMPLES
from sfao.optim.gate import GRANULARITIES, OPTION_NAMES
from sfao.optim.layers import layer_groups
from sfao.optim.sfao import SFAO
from sfao.streams.labelled_images import Batch
from sfao.streams.stream import Task

#: The options of :class:`sfao.Gate`, with the same names and defaults: a new one is a setting at once.
_FIELDS: dict[str, Any] = {name: (type(default), default) for name, default in DEFAULTS.items()}
GateFields = create_model("GateFields", __base__=MethodOptions, **_FIELDS)


#: The options that ask for a memory, those of `consolidate` among them.
ASKING_FOR = {**OPTIONS_OF, "directions": (*OPTIONS_OF["directions"], "target", "per")}


class SFAOOptions(GateFields):  # type: ignore[misc, valid-type]
    """The options of :class:`sfao.Gate` and of its `consolidate`, with the same defaults and the same rules."""

    granularity: str = GRANULARITIES[0]
    memory_budget: str | int | None = None
    target: str = "loss"
    per: str | None = None
    limit: int | None = None

    @model_validator(mode="before")
    @classmethod
    def _name_the_memory(cls, given: Any) -> Any:
        """Fill in the memory that the options ask for: a configuration that is written out names it."""
        if not isinstance(given, dict):
            return given
        # Where it is named, a default counts as not given: a configuration that was written out must read back.
        told = {
            name: value
            for name, value in given.items()
            if name == "memory" or "memory" not in given or value != _default_of(cls, name)
        }
        return {**given, "memory": choose_memory(told, ASKING_FOR)}

    @model_validator(mode="after")
    def _follow_the_rules_of_the_gate(self) -> Self:
        check_options(self.model_dump(include=set(OPTION_NAMES)))
        check_choice("granularity", self.granularity, GRANULARITIES)
        check_arguments(self.target, self.per, self.limit)
        if self.memory_budget is not None:
            parse_bytes(self.memory_budget)
            self._check_left_to_the_budget()
        return self

    def _check_left_to_the_budget(self) -> None:
        # A default counts as not given: a configuration that was written out in full must read back.
        for name in STORAGE_OPTIONS:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"`memory_budget` picks `{name}`; give one of the two, got both")

    def of_gate(self) -> dict[str, Any]:
        """Return the arguments of the gate."""
        held = MEMORIES[self.memory]
        unused = {name for memory, names in OPTIONS_OF.items() if memory not in held for name in names}
        planned = set(STORAGE_OPTIONS) if self.memory_budget is not None else set()
        arguments: dict[str, Any] = self.model_dump(exclude={"target", "per", "limit"} | planned | unused)
        return arguments


class SFAOMethod(GatedMethod):
    """The library's optimizer, with a memory stored from the training part of every task."""

    name = "sfao"
    Options = SFAOOptions
    options: SFAOOptions
    search_space: ClassVar[SearchSpace] = {"keep": Range(0.3, 0.9), "tolerance": Range(0.05, 0.5, log=True)}

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        super().__init__(model, training, options)
        #: Decisions up to the end of the first task, while there was nothing to compare with.
        self.first_decisions: dict[str, dict[str, int]] = {}

    def make_optimizer(self) -> SFAO:
        gate = self.options.of_gate()
        return SFAO(layer_groups(self.model), **self.descent(), seed=self.training.seed, **gate)

    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        stores_directions = "directions" in MEMORIES[self.options.memory]
        how: dict[str, Any] = {"target": self.options.target, "per": self.options.per} if stores_directions else {}
        with leave_warnings_to_concerns():
            self.optimizer.consolidate(
                TaskView(self.model, task.outputs),
                self._choose_batches(task, generator),
                cross_entropy,
                limit=self.options.limit,
                **how,
            )
        self.first_decisions = self.first_decisions or self.decisions

    def _choose_batches(self, task: Task, generator: torch.Generator) -> Iterable[Batch]:
        """Return the batches to consolidate: a pass over the task, of which no more is built than is used.

        Single examples are drawn here, as the first batch of a shuffled pass.
        """
        held = MEMORIES[self.options.memory]
        if "directions" in held and choose_unit(self.options.target, self.options.per) == "batch":
            return task.train.as_sequence(self.training.batch_size, generator, self.device)
        capacity = max(layer.memory.capacity for layer in self.optimizer.gate.layers)
        needed = max([EXAMPLES] * ("subspace" in held) + [capacity] * ("directions" in held))
        return islice(self.batches(task, generator, self.options.limit or needed), 1)

    def concerns(self) -> list[str]:
        return [*self._concerns_about_decisions(), *self._concerns_about_memory()]

    def _concerns_about_decisions(self) -> list[str]:
        later = {layer: _difference(self.decisions[layer], first) for layer, first in self.first_decisions.items()}
        gated = {layer: counts for layer, counts in later.items() if _count_decisions(counts)}
        if gated and all(counts["accept"] == _count_decisions(counts) for counts in gated.values()):
            name = "accept_above" if "directions" in MEMORIES[self.options.memory] else "keep"
            return [
                f"{self.name}: every gradient after the first task was accepted, so every update was that of sgd; "
                f"`{name}` is {getattr(self.options, name):g}"
            ]
        stuck = [layer for layer, counts in gated.items() if counts["discard"] == _count_decisions(counts)]
        if stuck:
            return [
                f"{self.name}: every gradient of {_name_layers(stuck)} after the first task was discarded, "
                f"so nothing more was learnt there; `discard_below` is {self.options.discard_below:g}"
            ]
        return []

    def _concerns_about_memory(self) -> list[str]:
        layers = self.optimizer.gate.layers
        free = [layer.name for layer in layers if layer.memories == ("subspace",) and not layer.remembers_inputs]
        found = [
            f"{self.name}: the memory of {_name_layers([layer.name])} spans all its {layer.memory.products.size} "
            f"parameters, so a projection leaves nothing to learn; `capacity` is {layer.memory.capacity}"
            for layer in layers
            if layer.memory.products.spans_everything
        ]
        if free and len(free) < len(layers):
            found.append(
                f"{self.name}: {_name_layers(free)} had no input space to remember, and moved as without a gate"
            )
        return found

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "first_decisions": self.first_decisions}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.first_decisions = {layer: dict(counts) for layer, counts in state["first_decisions"].items()}


def _default_of(options: type[MethodOptions], name: str) -> object:
    field = options.model_fields.get(name)
    return None if field is None else field.default


def _difference(counts: dict[str, int], earlier: dict[str, int]) -> dict[str, int]:
    return {name: count - earlier[name] for name, count in counts.items()}


def _count_decisions(counts: dict[str, int]) -> int:
    return sum(count for name, count in counts.items() if name != "zero")


def _name_layers(layers: list[str]) -> str:
    return f"layer{'s' if len(layers) > 1 else ''} {', '.join(map(repr, layers))}"
