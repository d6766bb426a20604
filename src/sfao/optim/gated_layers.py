"""The layers of a model behind a gate: gating, remembering, consolidating."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from sfao.gating.budget import MemoryPlan, bytes_per_direction, format_bytes, parse_bytes, plan_memory
from sfao.gating.decision import Decision, decide
from sfao.gating.layout import Layout, layouts
from sfao.gating.memory import Memory
from sfao.gating.options import DEFAULTS, GateOptions, check_choice, check_options
from sfao.gating.similarity import draw, extreme_cosines
from sfao.optim import consolidation
from sfao.optim.gradients import LayerGradient
from sfao.optim.layers import Layer

GRANULARITIES = ("layer", "global")
OPTION_NAMES = tuple(DEFAULTS)
#: What a memory budget picks, so that it must not be given beside one.
PLANNED_OPTIONS = ("storage", "rank", "memory_dtype")


class GatedLayers:
    """What :class:`sfao.Gate` and :class:`sfao.SFAO` have in common: layers with memories, and what is done to them."""

    def __init__(self, granularity: str, seed: int, memory_plan: MemoryPlan | None) -> None:
        check_choice("granularity", granularity, GRANULARITIES)
        self.granularity = granularity
        self.seed = seed
        self.memory_plan = memory_plan
        self.task = 0
        self.layers: list[Layer] = []
        self.last_decisions: dict[str, Decision] = {}
        self._groups: list[dict[str, Any]] = []

    # -- Layers ----------------------------------------------------------------------------------------

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise a ValueError if the gate could not take this group in."""
        check_options(group)
        if any(group["name"] == known["name"] for known in self._groups):
            raise ValueError(f"`name` must be unique among param groups, got {group['name']!r} twice")
        if self.granularity == "global" and self._groups:
            for name in OPTION_NAMES:
                if group[name] != self._groups[0][name]:
                    raise ValueError(
                        f'`{name}` must be the same in all groups when granularity="global", '
                        f"got {self._groups[0][name]!r} and {group[name]!r}"
                    )
        if self.memory_plan is not None:
            self._check_budget(group, self.memory_plan)

    def _check_budget(self, group: dict[str, Any], plan: MemoryPlan) -> None:
        needed = sum(_bytes_at_capacity(known) for known in (*self._groups, group))
        if needed > plan.budget:
            raise ValueError(
                f"`memory_budget` of {format_bytes(plan.budget)} must hold all groups, "
                f"but with {group['name']!r} they need {format_bytes(needed)}"
            )

    def add_group(self, group: dict[str, Any]) -> None:
        """Take in a named param group with all options set."""
        self.check_group(group)
        if self.granularity == "layer" or not self.layers:
            generator = torch.Generator().manual_seed(self.seed + 7919 * len(self.layers))
            name = "model" if self.granularity == "global" else group["name"]
            self.layers.append(Layer(name, group, generator))
        self.layers[-1].add_parameters(list(group["params"]), group)
        self._groups.append(group)

    def rebind(self, groups: list[dict[str, Any]]) -> None:
        """Read options from these groups, which take the place of the ones the gate was made with."""
        self._groups = groups
        for layer, group in zip(self.layers, groups, strict=False):
            layer.options = group

    # -- Gating ----------------------------------------------------------------------------------------

    def apply(self) -> None:
        """Turn the gradient g of every layer into its update u, in place, as the gate decides."""
        with self._exact():
            gradients = self._current_gradients()
            self.last_decisions = {}
            for layer, gradient in gradients:
                decision = _gated(layer, gradient)
                layer.counts[decision or "zero"] += 1
                if decision:
                    self.last_decisions[layer.name] = decision

    @contextmanager
    def _exact(self) -> Iterator[None]:
        """Out of autograd, and out of an autocast that would round the gate's own products."""
        device = self.layers[0].parameters[0].device.type
        with torch.no_grad(), torch.autocast(device, enabled=False):
            yield

    def _current_gradients(self) -> list[tuple[Layer, LayerGradient]]:
        """The gradients of the layers that have any; all are checked before anything is changed."""
        found = [(layer, layer.gradient()) for layer in self.layers if layer.has_gradient]
        for layer, gradient in found:
            _check_finite(layer, gradient)
        return found

    # -- Storing ---------------------------------------------------------------------------------------

    def remember(self) -> int:
        """Store the directions of the gradients that backward() left; returns how many were stored."""
        with self._exact():
            return sum(layer.remember(gradient, self.task) for layer, gradient in self._current_gradients())

    def consolidate(
        self,
        model: nn.Module,
        batches: Iterable[object],
        loss: consolidation.Loss | None = None,
        *,
        target: str = "loss",
        per: str | None = None,
        limit: int | None = None,
    ) -> int:
        """Store directions of a finished task and end it; returns how many were stored.

        Args:
            batches: (inputs, targets) pairs of the task.
            loss: called as ``loss(model(inputs), targets)``; not needed for ``target="logit"``.
            target: store gradients of the ``"loss"``, or of the true class's ``"logit"``.
            per: one gradient a ``"batch"`` or an ``"example"``. By default, batches for the loss and examples
                for logits, whose gradients have rank 1 in a Linear layer.
            limit: how many gradients to take at most, drawn uniformly. By default every batch, and as many
                examples as the memory can hold.

        The model is in eval mode meanwhile and its gradients, statistics and parameters stay as they are.
        If anything fails, so does the memory.
        """
        consolidation.check_harvest(target, per, limit)
        per = per if per is not None else {"loss": "batch", "logit": "example"}[target]
        if target == "loss" and loss is None:
            raise ValueError('`loss` must be given for target="loss", got None')
        objective = consolidation.true_logit if target == "logit" or loss is None else loss

        pairs: Iterable[consolidation.Batch] = consolidation.as_pairs(batches)
        if per == "example":
            pairs = consolidation.examples(pairs)
            limit = limit or max(layer.memory.capacity for layer in self.layers)
        stored = offered = 0
        with self._restored_on_error():
            if limit is not None:
                pairs = consolidation.sample(pairs, limit, self.layers[0].memory.generator)
            parameters = [parameter for layer in self.layers for parameter in layer.parameters]
            for gradients in consolidation.harvest(model, pairs, objective, parameters):
                stored += self._remember_given(gradients)
                offered += 1
            if offered == 0:
                raise ValueError("`batches` must yield at least one batch, got none")
        self.end_task()
        return stored

    def end_task(self) -> None:
        """Mark a task boundary: directions stored from now on belong to the next task."""
        self.task += 1

    def _remember_given(self, gradients: list[Tensor | None]) -> int:
        remaining = iter(gradients)
        with self._exact():
            found = [(layer, layer.gradient([next(remaining) for _ in layer.parameters])) for layer in self.layers]
            for layer, gradient in found:
                _check_finite(layer, gradient)
            return sum(layer.remember(gradient, self.task) for layer, gradient in found)

    @contextmanager
    def _restored_on_error(self) -> Iterator[None]:
        with ExitStack() as stack:
            for layer in self.layers:
                stack.enter_context(layer.memory.restored_on_error())
            yield

    # -- Looking ---------------------------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Decisions so far: {layer: {accept, project, discard, zero}}."""
        return {layer.name: dict(layer.counts) for layer in self.layers}

    @property
    def memory_bytes(self) -> int:
        """Bytes of directions held now. The small float64 Gram factor beside them is rebuilt, never saved."""
        return sum(layer.memory.bytes for layer in self.layers)

    def risk(self) -> float:
        """The interference risk R(u; B) of the last update: the most it moves against a unit direction.

        It reads the update where step() leaves it, in `.grad`: call it before zero_grad().
        """
        with self._exact():
            found = [(layer, layer.gradient()) for layer in self.layers if layer.has_gradient]
            if not found:
                raise RuntimeError("risk() reads the update that step() left in `.grad`; call it before zero_grad()")
            risks = [
                layer.memory.risk(gradient.matrices()) * gradient.norm / gradient.working_norm
                for layer, gradient in found
                if len(layer.memory) and gradient.norm > 0
            ]
        return max(risks, default=0.0)

    # -- State -----------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Memory, counts, options and generators, in plain containers and tensors."""
        return {
            "task": self.task,
            "granularity": self.granularity,
            "layers": {
                layer.name: {
                    "shapes": [list(parameter.shape) for parameter in layer.parameters],
                    "options": {name: layer.options[name] for name in OPTION_NAMES},
                    "counts": dict(layer.counts),
                    "memory": layer.memory.state_dict(),
                }
                for layer in self.layers
            },
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken. Nothing changes if the state is of another model."""
        self.restore(state, self.loaded_memories(state))

    def restore(self, state: dict[str, Any], memories: list[Memory]) -> None:
        self.task = state["task"]
        self.last_decisions = {}
        for layer, memory in zip(self.layers, memories, strict=True):
            saved = state["layers"][layer.name]
            layer.memory = memory
            layer.counts = dict(saved["counts"])
            layer.options.update(saved["options"])

    def loaded_memories(self, state: dict[str, Any]) -> list[Memory]:
        try:
            saved = state["layers"]
            if state["granularity"] != self.granularity:
                raise RuntimeError(
                    f"`state_dict` must have granularity {self.granularity!r}, got {state['granularity']!r}"
                )
            if list(saved) != [layer.name for layer in self.layers]:
                raise RuntimeError(
                    f"`state_dict` must be of a model with the layers {[layer.name for layer in self.layers]}, "
                    f"got {list(saved)}"
                )
            return [_loaded_memory(layer, saved[layer.name]) for layer in self.layers]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RuntimeError(f"`state_dict` must come from a gate, but reading it failed: {error!r}") from error


def planned_options(
    groups: list[dict[str, Any]], memory_budget: str | int | None, options: GateOptions
) -> tuple[dict[str, Any], MemoryPlan | None]:
    """The options with defaults filled in and, under a budget, with the storage and capacity it allows."""
    chosen: dict[str, Any] = {**DEFAULTS, **options}
    check_options(chosen)
    if memory_budget is None:
        return chosen, None
    for name in PLANNED_OPTIONS:
        if name in options or any(name in group for group in groups):
            raise ValueError(f"`memory_budget` picks `{name}`; give one of the two, got both")
    plan = plan_memory(list(chain.from_iterable(map(_layouts, groups))), parse_bytes(memory_budget), chosen["capacity"])
    return {**chosen, "capacity": plan.capacity, **{name: getattr(plan, name) for name in PLANNED_OPTIONS}}, plan


def _layouts(group: dict[str, Any]) -> list[Layout]:
    return layouts([parameter.shape for parameter in group["params"]])


def _bytes_at_capacity(group: dict[str, Any]) -> int:
    each = bytes_per_direction(_layouts(group), group["storage"], group["rank"], group["memory_dtype"])
    return each * int(group["capacity"])


def _gated(layer: Layer, gradient: LayerGradient) -> Decision | None:
    """Decide on a gradient and make it the update; None for a gradient of zero."""
    if gradient.norm == 0:
        return None
    memory, options = layer.memory, layer.options
    if len(memory) == 0:
        return Decision.ACCEPT
    layer.follow(gradient)
    matrices = gradient.matrices()
    sample = draw(len(memory), options["samples"], memory.generator)
    # Inner products with everything serve the projection too, where they had to be or may as well be taken.
    all_dots = memory.dots(matrices) if memory.is_small or isinstance(sample, slice) else None
    dots = memory.dots(matrices, sample) if all_dots is None else all_dots[sample]
    largest, smallest = extreme_cosines(
        dots, memory.inverse_norms(matrices)[sample], gradient.working_norm, options["cosine"]
    )
    decision = decide(
        largest,
        smallest,
        accept_above=options["accept_above"],
        discard_below=options["discard_below"],
        strict=options["strict"],
    )
    if decision is Decision.PROJECT:
        memory.project_(matrices, gradient.working_norm, options["projection"], all_dots)
        gradient.write_back(matrices)
    elif decision is Decision.DISCARD:
        gradient.zero_()
    return decision


def _check_finite(layer: Layer, gradient: LayerGradient) -> None:
    if not gradient.is_finite:
        raise ValueError(f"the gradient of layer {layer.name!r} must be finite, got {gradient.norm}")


def _loaded_memory(layer: Layer, saved: dict[str, Any]) -> Memory:
    shapes = [list(parameter.shape) for parameter in layer.parameters]
    if saved["shapes"] != shapes:
        raise RuntimeError(
            f"`state_dict` must have parameters of shapes {shapes} in layer {layer.name!r}, got {saved['shapes']}"
        )
    return Memory.from_state_dict(saved["memory"], layer.memory.layouts, layer.parameters[0].device)
