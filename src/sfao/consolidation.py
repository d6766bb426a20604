"""Storing directions of a finished task: assign slots, compute the gradients to store, and store all at once."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import hypot
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sfao.batches import (
    IGNORED,
    Batch,
    Loss,
    Objective,
    check_batches,
    count_examples,
    describe,
    draw_examples,
    draw_sorted,
    eval_mode,
    make_objective,
    map_tensors,
    read_pair,
    to_model,
)
from sfao.checks import check_choice, check_count
from sfao.distributed import Ranks, backward_in_shards, full_tensor, is_data_parallel, name_ranks, to_local
from sfao.layers import Layer, check_model
from sfao.memory.memory import Memory, check_norm, find_scale, full_precision, measure_norms
from sfao.memory.slots import Slots
from sfao.options import read_options
from sfao.state import check_fingerprints, weight_fingerprint

if TYPE_CHECKING:
    from sfao.gate import Gate

#: The unit of one gradient by target. Gradients of single logits have rank 1 in a Linear layer.
UNITS = {"loss": "batch", "logit": "example"}
#: Seeds of the draws of consecutive tasks differ by this.
DRAW_STRIDE = 1_000_003
#: Weights of ranks may differ by this, relative to their norm, through rounding.
ROUNDING = 1e-4


@dataclass(frozen=True)
class Task:
    """The arguments of `consolidate`, checked."""

    batches: Iterable[Any]
    loss: Loss | None
    objective: Objective | None
    target: str | None
    per: str | None
    limit: int | None

    def __post_init__(self) -> None:
        check_batches(self.batches, self.loss, self.objective)
        if self.objective is not None and self.target is not None:
            raise ValueError("`objective` replaces `target`; give one of the two, got both")
        if self.target is not None:
            check_choice("target", self.target, tuple(UNITS))
        if self.per is not None:
            check_choice("per", self.per, tuple(UNITS.values()))
        if self.limit is not None:
            check_count("limit", self.limit)

    def evaluate(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the value whose gradient is stored."""
        evaluate = measure_true_logit if self.target == "logit" else make_objective(self.loss, self.objective)
        value = evaluate(model, to_model(batch, model))
        if not bool(torch.isfinite(value)):
            raise ValueError(f"the loss of a past task must be finite, got {float(value.detach())}")
        return value

    def draw(self, limit: int, generator: torch.Generator) -> tuple[Iterable[Batch], Sequence[int]]:
        """Return batches, and the numbers of those to take one gradient each of.

        By default all batches, or as many examples as `limit` says. A limited number is drawn uniformly.
        """
        if (self.per or UNITS[self.target or "loss"]) == "example":
            examples = list(split_examples(draw_examples(self.batches, limit, generator)))
            return examples, range(len(examples))
        batches = self.batches
        try:
            count = len(batches)  # type: ignore[arg-type]
        except TypeError:  # a generator, or a loader over a stream
            batches = list(batches)
            count = len(batches)
        return batches, range(count) if self.limit is None else draw_sorted(count, limit, generator)


def split_examples(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield every example as a batch of one."""
    for batch in batches:
        count = count_examples(batch)
        if count is None:
            raise ValueError(
                "`batches` must be sliced into examples, so all tensors inside must share their first dimension, "
                f"but those of a {describe(batch)} don't"
            )
        for number in range(count):
            yield map_tensors(lambda tensor: tensor[number : number + 1], batch)  # noqa: B023


def measure_true_logit(model: nn.Module, batch: Batch) -> Tensor:
    """Return the logit of the true class, averaged over the batch and, for sequences, over all targets that count."""
    inputs, targets = read_pair(batch)
    outputs: Tensor = model(inputs)
    if outputs.ndim not in (2, 3) or targets.shape != outputs.shape[:-1] or targets.is_floating_point():
        raise ValueError(
            '`target="logit"` needs outputs of shape (batch, classes) or (batch, time, classes) and class indices, '
            f"got outputs of shape {tuple(outputs.shape)}, targets of shape {tuple(targets.shape)} and {targets.dtype}"
        )
    classes = outputs.shape[-1]
    if not bool((((targets >= 0) & (targets < classes)) | (targets == IGNORED)).all()):
        raise ValueError(
            f'`target="logit"` needs class indices below the {classes} outputs, '
            f"got {int(targets.min())} to {int(targets.max())}"
        )
    is_true = targets[..., None] == torch.arange(classes, device=outputs.device)
    return (outputs * is_true).sum() / (targets != IGNORED).sum().clamp_min(1)


# -- The task ------------------------------------------------------------------------------------------------


def consolidate(gate: "Gate", model: nn.Module | None, task: Task) -> int:
    """Store directions of a finished task in all layers and end it, or change nothing; return how many were stored."""
    if not gate.is_used:
        raise RuntimeError("consolidate() needs a gate in front of an optimizer; attach() it first")
    model = gate.model if model is None else model
    if model is None:
        raise ValueError("`model` must be given to consolidate(), because this was built from parameters, got None")
    if task.loss is model:
        raise ValueError("`loss` must be loss(outputs, targets), got the model; call consolidate(batches, loss)")
    there = set(model.parameters())
    if model is gate.model and not all(there.issuperset(layer.parameters) for layer in gate.layers):
        check_model(gate)
    if gate.fingerprints:
        check_fingerprints(gate)
    ranks = Ranks(gate.process_group, gate.sync)
    with torch.random.fork_rng(devices=[]), ranks.fail_together():
        incoming = take_task(gate, model, task, ranks)
        ranks.gather(None)  # all of them store, or none
    stored = sum(own.commit() for own in incoming)
    gate.tasks += 1
    ranks.broadcast_([tensor for layer in gate.layers for part in layer.memory.parts for tensor in part.held])
    warn_of_spanned(gate.layers)
    for hook in list(gate.hooks.values()):
        hook(gate)
    return stored


def take_task(gate: "Gate", model: nn.Module, task: Task, ranks: Ranks) -> "list[Incoming | Admission]":
    """Return the directions of a task for every layer; memories are as they were.

    All ranks compute the gradients of the batches of all, so they end with the same memory.
    """
    for layer in gate.layers:
        if not all(bool(torch.isfinite(to_local(parameter)).all()) for parameter in layer.parameters):
            raise ValueError(f"the weights of layer {layer.name!r} must be finite, got NaN or inf: training diverged")
    if ranks.size > 1:
        check_ranks(gate, task, ranks)
    is_split = ranks.size > 1 and is_data_parallel(model)  # otherwise all ranks see the same batches
    own, parts = (ranks.own, ranks.size) if is_split else (0, 1)
    limit = task.limit or max(layer.options["capacity"] for layer in gate.layers)
    # A generator for draws alone: those of the layers must stay the same on all ranks.
    generator = torch.Generator("cpu").manual_seed(gate.seed + DRAW_STRIDE * gate.tasks + own)
    batches, chosen = task.draw(-(-limit // parts), generator)
    counts = ranks.gather(len(chosen)) if is_split else [len(chosen)]
    if not sum(counts):
        raise ValueError("`batches` must yield at least one batch, got none")
    incoming = open_memories(gate.layers, gate.tasks, sum(counts))
    numbers = enumerate(chosen, start=sum(counts[:own]))
    wanted = {place: number for number, place in numbers if any(own.wants(number) for own in incoming)}
    units: Iterable[tuple[int, Batch]] = select(batches, wanted)
    if is_split:
        mine = {number: map_tensors(lambda value: value.to("cpu"), batch) for number, batch in units}
        units = sorted((pair for of_rank in ranks.gather(mine) for pair in of_rank.items()), key=lambda pair: pair[0])
    parameters = [parameter for layer in gate.layers for parameter in layer.parameters]
    has_units, is_used = False, False
    with eval_mode(model), torch.enable_grad():
        for number, batch in units:
            gradients = take_gradients(model, batch, task, parameters, gate.is_sharded)
            has_units, is_used = True, is_used or bool(gradients)
            with full_precision(parameters[0].device.type):
                for memory in incoming:
                    memory.add(number, [gradients.get(parameter) for parameter in memory.layer.parameters])
    if has_units and not is_used:
        raise ValueError("`model` must use the gated parameters, but none of them had a gradient")
    return incoming


def select(batches: Iterable[Batch], wanted: dict[int, int]) -> Iterator[tuple[int, Batch]]:
    """Yield the wanted batches with their numbers; of a sequence, no other is even read."""
    if isinstance(batches, Sequence):
        yield from ((number, batches[place]) for place, number in wanted.items())
    else:
        yield from ((wanted[place], batch) for place, batch in enumerate(batches) if place in wanted)


def take_gradients(
    model: nn.Module, batch: Batch, task: Task, parameters: Sequence[Tensor], is_sharded: bool
) -> dict[Tensor, Tensor]:
    """Return the gradients of a batch by parameters; `.grad` isn't touched."""
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    if not trainable:
        raise ValueError("at least one gated parameter must require gradients to consolidate, got none")
    if is_sharded:
        found = backward_in_shards(model, lambda: task.evaluate(model, batch), trainable)
    else:
        found = list(torch.autograd.grad(task.evaluate(model, batch), trainable, allow_unused=True))
    return {parameter: own for parameter, own in zip(trainable, found, strict=True) if own is not None}


def check_ranks(gate: "Gate", task: Task, ranks: Ranks) -> None:
    """Raise a ValueError that names the ranks whose layers, options, arguments, memories or weights differ."""
    ranks.check_alike(
        {
            "layers": [(layer.name, [tuple(p.shape) for p in layer.parameters]) for layer in gate.layers],
            "options": [read_options(layer.options) for layer in gate.layers],
            "arguments of consolidate()": (task.target, task.per, task.limit, task.objective is None),
            "memories": (gate.tasks, [layer.memory.slots for layer in gate.layers]),
        }
    )
    own = [weight for layer in gate.layers for weight in weight_fingerprint(layer)]
    found = torch.tensor(ranks.gather(own), dtype=torch.float64)
    distances, most = (found - found[0]).norm(dim=1), ROUNDING * float(found[0].norm())
    others = [rank for rank, distance in enumerate(distances.tolist()) if not distance <= most]
    if others:
        raise ValueError(f"the weights must be the same on all ranks, but differ on {name_ranks(others)}")


def warn_of_spanned(layers: Sequence[Layer]) -> None:
    """Warn if directions span all parameters of some layers: a projection leaves nothing of a gradient."""
    names = [f"{own.name!r} ({own.memory.size} parameters)" for own in layers if own.memory.spans_everything()]
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        warnings.warn(
            "the directions of these layers span all of their parameters, so a projection leaves nothing to learn: "
            f"{', '.join(names[:3])}{more}; set a smaller `capacity` in their param groups",
            RuntimeWarning,
            stacklevel=4,
        )


# -- Storing -------------------------------------------------------------------------------------------------


def open_memories(layers: Sequence[Layer], task: int, count: int) -> "list[Incoming | Admission]":
    """Return what takes in `count` units of a task for each layer.

    Layers with the same history share the slots that one of them drew, so that fewer gradients are needed.
    """
    incoming: list[Incoming | Admission] = []
    drawn: list[tuple[Any, Incoming]] = []
    for layer in layers:
        options = layer.options
        if options["admit_below"] < 1 or options["min_norm"] > 0:
            incoming.append(Admission(layer, task))
            continue
        history = layer.memory.slots, options["capacity"], options["eviction"]
        alike = next((own for known, own in drawn if known == history), None)
        own = Incoming(layer, alike.owners, alike.slots, layer.generator) if alike else draw_slots(layer, task, count)
        drawn.append((history, own))
        incoming.append(own)
    return incoming


def draw_slots(layer: Layer, task: int, count: int) -> "Incoming":
    """Assign slots of a layer to units of a task, of which later ones may replace earlier ones."""
    generator, slots, options = layer.generator.clone_state(), layer.memory.slots, layer.options
    units: dict[int, int] = {}
    for number in range(count):
        slots, slot = slots.insert(task, options["capacity"], options["eviction"], generator)
        units |= {} if slot is None else {slot: number}
    return Incoming(layer, {number: slot for slot, number in units.items()}, slots, generator)


@dataclass(eq=False)
class Incoming:
    """Directions of a task on their way into the memory of a layer, which changes only in `commit`.

    Slots are assigned first, so that only gradients that will be stored are computed.

    Args:
        layer: the layer.
        owners: the slot of every unit that is stored.
        slots: the slot table after all of them.
        generator: the layer's, after these draws.
    """

    layer: Layer
    owners: dict[int, int]
    slots: Slots
    generator: torch.Generator
    staged: dict[int, list[list[Tensor]]] = field(default_factory=dict)

    def wants(self, number: int) -> bool:
        """Return True if the gradient of a unit is needed."""
        return number in self.owners

    def add(self, number: int, gradients: Sequence[Tensor | None]) -> None:
        """Stage the gradient of a unit, unless it is zero."""
        norm = measure_norm(self.layer, gradients) if self.wants(number) else 0.0
        if norm > 0:
            self.staged[self.owners[number]] = self.layer.memory.encode(gradients, norm)

    def commit(self) -> int:
        """Store the staged directions; return how many there are.

        Of units without a gradient, the directions that were in their slots stay, and new slots are given up.
        """
        memory, stored = self.layer.memory, len(self.staged)
        kept = [slot for slot in range(len(self.slots.tasks)) if slot < len(memory) or slot in self.staged]
        tables = [(self.slots if slot in self.staged else memory.slots, slot) for slot in kept]
        tasks, arrivals = ([getattr(table, name)[slot] for table, slot in tables] for name in ("tasks", "arrivals"))
        directions = {place: self.staged.pop(slot) for place, slot in enumerate(kept) if slot in self.staged}
        slots = Slots(tuple(tasks), tuple(arrivals), self.slots.offered)
        memory.store(directions, slots, self.layer.options["capacity"])
        self.layer.generator = self.generator
        return stored


class Admission:
    """The same where `admit_below` or `min_norm` looks at the gradient: all are computed, for a copy of the memory."""

    def __init__(self, layer: Layer, task: int) -> None:
        self.layer, self._task, self._stored = layer, task, 0
        self._memory, self._generator = layer.memory.clone(), layer.generator.clone_state()

    def wants(self, number: int) -> bool:
        return True

    def add(self, number: int, gradients: Sequence[Tensor | None]) -> None:
        self._stored += insert(self.layer, self._memory, self._generator, gradients, self._task)

    def commit(self) -> int:
        self.layer.memory, self.layer.generator = self._memory, self._generator
        return self._stored


# -- Single gradients ----------------------------------------------------------------------------------------


def remember(gate: "Gate") -> int:
    """Store the directions of the gradients that backward() left; return how many were stored."""
    found = {
        layer: [None if p.grad is None else full_tensor(p.grad) for p in layer.parameters] for layer in gate.layers
    }
    for layer, gradients in found.items():
        measure_norm(layer, gradients)  # raises before anything changes
    with full_precision(gate.param_groups[0]["params"][0].device.type):
        return sum(insert(layer, layer.memory, layer.generator, own, gate.tasks) for layer, own in found.items())


def insert(
    layer: Layer, memory: Memory, generator: torch.Generator, gradients: Sequence[Tensor | None], task: int
) -> bool:
    """Store the direction of gradients in a memory, if the layer's options admit it; return True if stored."""
    options, norm = layer.options, measure_norm(layer, gradients)
    if norm == 0 or norm < options["min_norm"]:
        return False
    if options["admit_below"] < 1 and len(memory):
        scale, active = find_scale(norm), tuple(gradient is not None for gradient in gradients)
        extremes = memory.extreme_dots(memory.dots(memory.as_matrices(gradients, scale)), None, active)
        if extremes and float(extremes[1]) / (norm * scale) >= options["admit_below"]:
            return False
    slots, slot = memory.slots.insert(task, options["capacity"], options["eviction"], generator)
    memory.store({} if slot is None else {slot: memory.encode(gradients, norm)}, slots, options["capacity"])
    return slot is not None


def measure_norm(layer: Layer, gradients: Sequence[Tensor | None]) -> float:
    """Return the norm of gradients; raise a NonFiniteGradient if it isn't finite."""
    present = [gradient for gradient in gradients if gradient is not None]
    return check_norm(layer.name, present, hypot(*map(float, measure_norms(present))) if present else 0.0)
