"""Gradients of a finished task on their way into the memories of the layers."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from sfao.gating.block import Block
from sfao.gating.products import by_block
from sfao.gating.stack import FullStack, OuterStack, Stack
from sfao.optim.consolidation import Batch, Loss
from sfao.optim.gradients import LARGE, SMALL, working_dtype
from sfao.optim.layers import Layer
from sfao.optim.selection import Selection, chooses_blindly
from sfao.optim.unit_gradients import GradientTaker, UnitGradients
from sfao.optim.units import Units


class Deposit:
    """Stores gradients of units in the layers, a piece at a time, as the selection says."""

    def __init__(self, layers: Sequence[Layer], task: int, selection: Selection) -> None:
        self._layers = layers
        self._task = task
        self._selection = selection
        self._written: dict[Layer, dict[int, int]] = {layer: {} for layer in layers if chooses_blindly(layer)}
        self._admitted = 0
        #: Whether any gradient has come at all, and whether it was one of the layers'.
        self.taken = self.reached = False

    def add(self, numbers: Sequence[int], found: UnitGradients) -> None:
        self.taken = True
        self.reached = self.reached or bool(found.full or found.outer)
        stacks = {layer: _stacks(layer, found) for layer in self._layers}
        with_gradient = [layer for layer in self._layers if not all(stack.is_empty for stack in stacks[layer])]
        if not with_gradient:
            return
        # One fetch for all layers and units.
        norms = dict(zip(with_gradient, torch.stack([_norms(stacks[a]) for a in with_gradient]).tolist(), strict=True))
        ordinary = {layer: all(n == 0 or SMALL < n < LARGE for n in norms[layer]) for layer in with_gradient}
        for layer in with_gradient:
            if layer not in self._written or not ordinary[layer]:
                self._add_one_by_one(layer, numbers, found)
            else:
                self._add_together(layer, numbers, stacks[layer], norms[layer])

    def close(self) -> int:
        """How many directions the layers have been given."""
        for layer, written in self._written.items():
            self._selection.close(layer, written)
        return self._admitted + sum(len(written) for written in self._written.values())

    def _add_together(self, layer: Layer, numbers: Sequence[int], stacks: list[Stack], norms: list[float]) -> None:
        slots = self._selection.slots(layer, numbers)
        chosen = [position for position in slots if norms[position] > 0]
        if not chosen:
            return
        device = layer.parameters[0].device
        layer.bring_to(device)
        if chosen != list(range(len(numbers))):
            index = torch.tensor(chosen, device=device)
            stacks = [stack if stack.is_empty else stack.select(index) for stack in stacks]
        scales = torch.tensor([1 / norms[position] for position in chosen], dtype=torch.float64, device=device)
        layer.memory.write([slots[position] for position in chosen], stacks, scales)
        self._written[layer].update({slots[position]: numbers[position] for position in chosen})

    def _add_one_by_one(self, layer: Layer, numbers: Sequence[int], found: UnitGradients) -> None:
        """Where a gradient has to be looked at, or is so large or small that it must be scaled first."""
        slots = self._selection.slots(layer, numbers) if layer in self._written else {}
        for position, number in enumerate(numbers):
            gradient = layer.gradient([found.of(p, position, beside[0]) for _, beside in _parts(layer) for p in beside])
            layer.check_finite(gradient)
            if layer not in self._written:
                self._admitted += layer.remember(gradient, self._task)
            elif position in slots and gradient.norm > 0:
                layer.put(gradient, slots[position])
                self._written[layer][slots[position]] = number


def harvest_into(
    layers: Sequence[Layer],
    task: int,
    model: nn.Module,
    objective: Loss,
    units: Units,
    exact: Callable[[], AbstractContextManager[None]],
) -> int:
    """Take the gradients that the layers will hold, and store them, under `exact`; returns how many."""
    selection = Selection(layers, task, units.count)
    deposit = Deposit(layers, task, selection)
    parameters = [parameter for layer in layers for parameter in layer.parameters]
    linear = dict(_linear(part) for layer in layers for part in _parts(layer))
    taker = GradientTaker(model, objective, parameters, linear)
    asked = False

    def wants(number: int) -> bool:
        nonlocal asked
        asked = True
        return selection.wants(number)

    for numbers, batches in _pieces(units.wanted(wants), taker):
        taken = iter(numbers)
        for found in taker.take(batches):
            with exact():
                deposit.add([next(taken) for _ in range(found.count)], found)
    if not asked:
        raise ValueError("`batches` must yield at least one batch, got none")
    if deposit.taken and not deposit.reached:
        raise ValueError("`model` must use the gated parameters, but none of them had a gradient")
    with exact():
        return deposit.close()


def _pieces(units: Iterable[tuple[int, Batch]], taker: GradientTaker) -> Iterator[tuple[list[int], list[Batch]]]:
    """Units of one shape that follow each other, as many as can be taken at once."""
    numbers: list[int] = []
    batches: list[Batch] = []
    room = 0
    for number, batch in units:
        if batches and (len(batches) >= room or not _alike(batch, batches[0])):
            yield numbers, batches
            numbers, batches = [], []
        if not batches:
            room = taker.room(batch)
        numbers.append(number)
        batches.append(batch)
    if batches:
        yield numbers, batches


def _norms(stacks: Sequence[Stack]) -> Tensor:
    return torch.stack([stack.squares() for stack in stacks if not stack.is_empty]).sum(0).sqrt()


def _alike(one: Batch, other: Batch) -> bool:
    return all(a.shape == b.shape and a.dtype == b.dtype for a, b in zip(one, other, strict=True))


def _parts(layer: Layer) -> list[tuple[Block, Sequence[Tensor]]]:
    return list(by_block(layer.memory.blocks, layer.parameters))


def _linear(part: tuple[Block, Sequence[Tensor]]) -> tuple[Tensor, Tensor | None]:
    """The weight and the bias that a block would be of, were it that of a Linear layer."""
    _, parameters = part
    return parameters[0], parameters[1] if len(parameters) == 2 else None


def _stacks(layer: Layer, found: UnitGradients) -> list[Stack]:
    orders = by_block(layer.memory.blocks, layer.memory.channels_last)
    return [
        _stack(block, parameters, order, found)
        for (block, parameters), (_, order) in zip(_parts(layer), orders, strict=True)
    ]


def _stack(block: Block, parameters: Sequence[Tensor], order: Sequence[int], found: UnitGradients) -> Stack:
    """The gradients of a block, in the order in which it holds its directions."""
    layout = block.layout
    if parameters[0] not in found.outer:
        shapes = [(layout.rows, columns) for columns in layout.columns]
        return FullStack(
            [
                _ordered(found.full[p], channels).reshape(-1, *shape) if p in found.full else None
                for p, channels, shape in zip(parameters, order, shapes, strict=True)
            ]
        )
    deltas, inputs = (side.to(working_dtype(side)) for side in found.outer[parameters[0]])
    rights = [inputs, torch.ones_like(inputs[..., :1])][: len(parameters)]
    if deltas.shape[1] * (layout.rows + layout.width) < layout.size:
        return OuterStack.of(deltas, rights)
    return FullStack([deltas.mT @ right for right in rights])


def _ordered(gradients: Tensor, channels_last: int) -> Tensor:
    working = gradients.to(working_dtype(gradients))
    return working.movedim(2, -1) if channels_last else working
