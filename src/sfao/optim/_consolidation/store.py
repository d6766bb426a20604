"""The store: gradients of a finished task go into the memories of the layers."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from sfao.gating._block import Block, FullStack, OuterStack, Stack
from sfao.optim._consolidation.batches import Batch, Request, Units
from sfao.optim._consolidation.draw import Draw, draws_blindly
from sfao.optim._consolidation.gradients import GradientTaker, UnitGradients
from sfao.optim._consolidation.objectives import Objective
from sfao.optim._consolidation.spaces import find_spaces
from sfao.optim._consolidation.trees import sign
from sfao.optim._host_path import (
    LARGE,
    SMALL,
    LayerGradient,
    check_finite,
    follow_gradient,
    read_gradient,
)
from sfao.optim._whole_or_not import Exactly
from sfao.optim.layers import Layer


def store_memories(
    layers: Sequence[Layer],
    task: int,
    model: nn.Module,
    request: Request,
    exactly: Exactly,
    confirm: Callable[[], object] | None = None,
) -> int:
    """Store the directions and the input spaces of a task, if `confirm` does not raise; return how many.

    Whoever asks for it goes back to what the layers held if it fails: see `sfao.optim._books`.
    """
    holders = [layer for layer in layers if "directions" in layer.memories]
    spatial = [layer for layer in layers if "subspace" in layer.memories]
    generator = layers[0].memory.generator
    if holders and spatial and isinstance(request.batches, Iterator):
        request = replace(request, batches=list(request.batches))
    stored, spaces = 0, {}
    if holders:
        units = request.make_units(max(layer.memory.capacity for layer in holders), generator)
        stored = store_task(holders, task, model, request.make_objective(), units, exactly)
    if spatial:
        spaces = find_spaces(spatial, model, request, generator, exactly)
    if confirm is not None:
        confirm()
    for layer, found in spaces.items():
        layer.set_spaces(found)
        layer.travel = layer.travel.start_anew()
    _warn_of_frozen(holders)
    return stored + sum(len(space.axes) for found in spaces.values() for space in found)


def _warn_of_frozen(layers: Sequence[Layer]) -> None:
    """Warn of layers whose directions span all their parameters, once for each: a projection leaves nothing of them."""
    frozen = [
        layer
        for layer in layers
        if not layer.was_warned_of
        and len(layer.memory) >= sum(parameter.numel() for parameter in layer.parameters)
        and layer.memory.products.spans_everything
    ]
    for layer in frozen:
        layer.was_warned_of = True
    if frozen:
        names = ", ".join(f"{layer.name!r} ({layer.memory.products.size} parameters)" for layer in frozen[:3])
        more = f" and {len(frozen) - 3} more" if len(frozen) > 3 else ""
        warnings.warn(
            f"the directions of these layers span all of their parameters, so that a projection leaves them nothing "
            f"to learn by: {names}{more}; a smaller `capacity` in their param groups, or memory='subspace', does",
            RuntimeWarning,
            stacklevel=4,
        )


def store_task(
    layers: Sequence[Layer],
    task: int,
    model: nn.Module,
    objective: Objective,
    units: Units,
    exactly: Exactly,
) -> int:
    """Take the gradients that the layers will hold, and store them under `exactly`; return how many."""
    draw = Draw(layers, task, units.count)
    store = Store(layers, task, draw)
    parameters = [parameter for layer in layers for parameter in layer.parameters]
    linear = dict(_find_linear(parameters) for layer in layers for _, parameters, _ in _split(layer))
    taker = GradientTaker(model, objective, parameters, linear, layers[0].in_shards)
    any_unit = False

    def is_wanted(number: int) -> bool:
        nonlocal any_unit
        any_unit = True
        return draw.is_wanted(number)

    for numbers, batches in _group(units.select(is_wanted), taker):
        remaining = iter(numbers)
        for found in taker.take(batches):
            exactly(partial(store.add, [next(remaining) for _ in range(found.count)], found))
    if not any_unit:
        raise ValueError("`batches` must yield at least one batch, got none")
    if store.is_unreached:
        raise ValueError("`model` must use the gated parameters, but none of them had a gradient")
    return exactly(store.close)


def store_gradient(layer: Layer, gradient: LayerGradient, task: int) -> bool:
    """Store the direction of a gradient, if the layer's options admit it; tell whether it was stored."""
    if gradient.norm == 0 or gradient.norm < layer.options["min_norm"]:
        return False
    follow_gradient(layer, gradient)
    return layer.memory.store_if_admitted(
        gradient.matrices(),
        gradient.working_norm,
        task,
        eviction=layer.options["eviction"],
        admit_below=layer.options["admit_below"],
    )


class Store:
    """Stores gradients of units in the layers, some at a time, in the slots that were drawn for them."""

    def __init__(self, layers: Sequence[Layer], task: int, draw: Draw) -> None:
        self._layers = layers
        self._task = task
        self._draw = draw
        self._stored: dict[Layer, dict[int, int]] = {layer: {} for layer in layers if draws_blindly(layer)}
        self._admitted = 0
        self._any_gradient = self._any_of_layers = False

    @property
    def is_unreached(self) -> bool:
        """True if gradients have come, but none of the layers' parameters."""
        return self._any_gradient and not self._any_of_layers

    def add(self, numbers: Sequence[int], found: UnitGradients) -> None:
        """Store the gradients of the units of these numbers."""
        self._any_gradient = True
        self._any_of_layers = self._any_of_layers or bool(found.full or found.outer)
        stacks = {layer: _stack(layer, found) for layer in self._layers}
        with_gradient = [layer for layer in self._layers if not all(stack.is_empty for stack in stacks[layer])]
        if not with_gradient:
            return
        # One fetch for all layers and units.
        measured = torch.stack([_measure_norms(stacks[layer]) for layer in with_gradient]).tolist()
        for layer, norms in zip(with_gradient, measured, strict=True):
            is_ordinary = all(norm == 0 or SMALL < norm < LARGE for norm in norms)
            if layer not in self._stored or not is_ordinary:
                self._add_one_by_one(layer, numbers, found)
            else:
                self._add_together(layer, numbers, stacks[layer], norms)

    def close(self) -> int:
        """Let the memories hold what was stored; return how many directions were."""
        for layer, stored in self._stored.items():
            self._draw.close(layer, stored)
        return self._admitted + sum(len(stored) for stored in self._stored.values())

    def _add_together(self, layer: Layer, numbers: Sequence[int], stacks: list[Stack], norms: list[float]) -> None:
        slots = self._draw.slots(layer, numbers)
        chosen = [position for position in slots if norms[position] > 0]
        if not chosen:
            return
        device = layer.parameters[0].device
        layer.memory.to(device)
        if chosen != list(range(len(numbers))):
            index = torch.tensor(chosen, device=device)
            stacks = [stack if stack.is_empty else stack.select(index) for stack in stacks]
        scales = torch.tensor([1 / norms[position] for position in chosen], dtype=torch.float64, device=device)
        layer.memory.store([slots[position] for position in chosen], stacks, scales)
        self._stored[layer].update({slots[position]: numbers[position] for position in chosen})

    def _add_one_by_one(self, layer: Layer, numbers: Sequence[int], found: UnitGradients) -> None:
        """Store gradients that have to be looked at, or are so large or small that they must be scaled first."""
        slots = self._draw.slots(layer, numbers) if layer in self._stored else {}
        for position, number in enumerate(numbers):
            of_unit = [found.of(p, position, beside[0]) for _, beside, _ in _split(layer) for p in beside]
            gradient = read_gradient(layer, of_unit)
            check_finite(layer, gradient)
            if layer not in self._stored:
                self._admitted += store_gradient(layer, gradient, self._task)
            elif position in slots and gradient.norm > 0:
                follow_gradient(layer, gradient)
                layer.memory.store_one(slots[position], gradient.matrices(), gradient.working_norm)
                self._stored[layer][slots[position]] = number


def _group(units: Iterable[tuple[int, Batch]], taker: GradientTaker) -> Iterator[tuple[list[int], list[Batch]]]:
    """Yield units of one shape that follow each other, as many as can be taken at once."""
    numbers: list[int] = []
    batches: list[Batch] = []
    room = 0
    for number, batch in units:
        if batches and (len(batches) >= room or sign(batch) != sign(batches[0])):
            yield numbers, batches
            numbers, batches = [], []
        if not batches:
            room = taker.room(batch)
        numbers.append(number)
        batches.append(batch)
    if batches:
        yield numbers, batches


def _measure_norms(stacks: Sequence[Stack]) -> Tensor:
    return torch.stack([stack.squares() for stack in stacks if not stack.is_empty]).sum(0).sqrt()


def _split(layer: Layer) -> Iterator[tuple[Block, Sequence[Tensor], Sequence[int]]]:
    """Yield each block of the memory with the parameters that it is of, and the order of their gradients."""
    start = 0
    for block in layer.memory.blocks:
        end = start + len(block.layout.columns)
        yield block, layer.parameters[start:end], layer.memory.channels_last[start:end]
        start = end


def _find_linear(parameters: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
    """Return the weight and the bias that a block of these parameters would be of, were it that of a Linear layer."""
    return parameters[0], parameters[1] if len(parameters) == 2 else None


def _stack(layer: Layer, found: UnitGradients) -> list[Stack]:
    return [_stack_block(block, parameters, order, found) for block, parameters, order in _split(layer)]


def _stack_block(block: Block, parameters: Sequence[Tensor], order: Sequence[int], found: UnitGradients) -> Stack:
    """Return the gradients of a block, in the order in which it holds its directions."""
    layout = block.layout
    if parameters[0] not in found.outer:
        shapes = [(layout.rows, columns) for columns in layout.columns]
        return FullStack(
            [
                _reorder(found.full[p], channels).reshape(-1, *shape) if p in found.full else None
                for p, channels, shape in zip(parameters, order, shapes, strict=True)
            ]
        )
    deltas, inputs = (_widen(side) for side in found.outer[parameters[0]])
    rights = [inputs, torch.ones_like(inputs[..., :1])][: len(parameters)]
    if deltas.shape[1] * (layout.rows + layout.width) < layout.size:
        return OuterStack.make(deltas, rights)
    return FullStack([deltas.mT @ right for right in rights])


def _reorder(gradients: Tensor, channels_last: int) -> Tensor:
    return _widen(gradients).movedim(2, -1) if channels_last else _widen(gradients)


def _widen(gradients: Tensor) -> Tensor:
    return gradients if gradients.dtype == torch.float64 else gradients.float()
