"""The memory of one layer: its directions, where they came from, and the projection off them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from sfao.gating.block import ALL, Block
from sfao.gating.dense import DenseBlock
from sfao.gating.eviction import Slots
from sfao.gating.factored import FactoredBlock
from sfao.gating.layout import Layout
from sfao.gating.products import Products, by_block
from sfao.gating.projection import PROJECTIONS, Projection, Span
from sfao.gating.similarity import Sampler, extreme_cosines
from sfao.gating.stack import FullStack, Matrices, Stack

# What rounding may leave of a stored direction in the projected gradient, relative to its norm.
ORTHOGONALITY = 5e-6
# How many sets of active parameters to keep products for.
MAX_PATTERNS = 16
# Multiplications that take no longer than the few calls around them.
SMALL_WORK = 2**20


def make_block(layout: Layout, storage: str, rank: int, dtype: torch.dtype) -> Block:
    """A block in the storage asked for; dense where factors of that rank would not be smaller."""
    if storage == "factored" and FactoredBlock.saves_memory(layout, rank):
        return FactoredBlock(layout, dtype, rank)
    return DenseBlock(layout, dtype)


class Memory:
    """Up to `capacity` directions of the parameters of one layer.

    Gradients come as matrices, one a parameter (`layout.as_matrices`), None for parameters without one.
    """

    def __init__(self, blocks: Sequence[Block], capacity: int, generator: torch.Generator) -> None:
        self.blocks = list(blocks)
        self.capacity = capacity
        self.generator = generator
        self.sampler = Sampler(generator.initial_seed() + 1)
        self.slots = Slots()
        #: Another number whenever the directions, or where they lie, are others.
        self.version = 0
        #: How the gradients of the parameters lie in memory: so many channels last, 0 for first.
        self.channels_last: list[int] = [0] * sum(len(block.layout.columns) for block in self.blocks)
        self._reserved = 0
        # By which parameters are active: with a head a task, a few patterns take turns.
        self._products: dict[tuple[bool, ...], Products] = {}
        self._projections: dict[tuple[str, tuple[bool, ...]], Projection] = {}
        self._overwritten: dict[int, list[list[Tensor]]] | None = None

    def __len__(self) -> int:
        return len(self.slots.tasks)

    @property
    def layouts(self) -> list[Layout]:
        return [block.layout for block in self.blocks]

    @property
    def size(self) -> int:
        """The number of parameters."""
        return sum(block.layout.size for block in self.blocks)

    @property
    def bytes(self) -> int:
        return sum(block.bytes for block in self.blocks)

    @property
    def workspace_bytes(self) -> int:
        """The small matrices beside the directions: their Gram matrix, in float64, and its factor."""
        kept = [products.bytes for products in self._products.values()]
        return sum(kept) + sum(projection.bytes for projection in self._projections.values())

    @property
    def device(self) -> torch.device:
        return self.blocks[0].tensors[0].device

    def to(self, device: torch.device) -> None:
        for block in self.blocks:
            block.to(device)
        self._forget_products()

    def arrange(self, channels_last: Sequence[int | None]) -> None:
        """Hold the directions in the order of the gradients, None where there is no gradient to follow."""
        wanted = [old if new is None else new for old, new in zip(self.channels_last, channels_last, strict=True)]
        if wanted == self.channels_last:
            return
        moves = zip(by_block(self.blocks, self.channels_last), by_block(self.blocks, wanted), strict=True)
        for (block, before), (_, after) in moves:
            block.arrange(before, after)
        self.channels_last = wanted
        self.version += 1

    def add_block(self, block: Block) -> None:
        """Take more parameters in; the directions held so far are zero in them."""
        if self.blocks:
            block.to(self.device)
        block.reserve(self._reserved)
        block.resize(len(self))
        self.blocks.append(block)
        self.channels_last += [0] * len(block.layout.columns)
        self._forget_products()

    # -- Storing ---------------------------------------------------------------------------------------

    def offer(self, gradients: Matrices, norm: float, task: int, *, eviction: str, admit_below: float) -> bool:
        """Store the direction of the gradients, unless it is too like one that is held or finds no slot."""
        if admit_below < 1 and len(self) and self._largest_cosine(gradients, norm) >= admit_below:
            return False
        slot = self.slots.offer(task, self.capacity, eviction, self.generator)
        if slot is None:
            return False
        self.write_one(slot, gradients, norm)
        return True

    @contextmanager
    def restored_on_error(self) -> Iterator[None]:
        """Leave the memory as it was if the body fails. Only the slots the body overwrites are copied."""
        slots, reserved, randomness = self.slots.copy(), self._reserved, self.generator.get_state()
        self._overwritten = {}
        try:
            yield
        except BaseException:
            for slot, saved in self._overwritten.items():
                for block, tensors in zip(self.blocks, saved, strict=True):
                    block.put([slot], tensors)
            self.slots = slots
            for block in self.blocks:
                block.resize(len(self))
            self._reserve(reserved)
            self.generator.set_state(randomness)
            self._forget_products()
            raise
        finally:
            self._overwritten = None

    def write(self, slots: Sequence[int], stacks: Sequence[Stack], scales: Tensor) -> None:
        """Store gradients, a stack a block, each times its scale, in these slots; the books are kept elsewhere."""
        self._change(slots)
        for block, stack in zip(self.blocks, stacks, strict=True):
            block.write(slots, stack, scales)

    def write_one(self, slot: int, gradients: Matrices, norm: float) -> None:
        alone = [None if gradient is None else gradient[None] for gradient in gradients]
        stacks = [FullStack(part) for _, part in by_block(self.blocks, alone)]
        self.write([slot], stacks, torch.tensor([1 / norm], dtype=torch.float64, device=self.device))

    def move(self, source: int, slot: int) -> None:
        """Put the direction of one slot into another."""
        self._change([slot])
        for block in self.blocks:
            block.put([slot], block.get(source))

    def close(self, slots: Slots) -> None:
        """Hold the directions that these books name, after `write` and `move`."""
        self.slots = slots
        for block in self.blocks:
            block.resize(len(self))
        for products in self._products.values():
            products.closed(range(len(self), self._reserved))

    def _change(self, slots: Sequence[int]) -> None:
        needed = max(slots) + 1
        if needed > self._reserved:
            self._reserve(min(self.capacity, _doubled_up_to(needed)))
        if self._overwritten is not None:
            for slot in slots:
                if slot < self.blocks[0].count and slot not in self._overwritten:
                    self._overwritten[slot] = [block.get(slot) for block in self.blocks]
        for products in self._products.values():
            products.changed(slots)
        self._projections.clear()
        self.version += 1

    def _reserve(self, slots: int) -> None:
        if slots != self._reserved:
            for block in self.blocks:
                block.reserve(slots)
            self._reserved = slots
            self.version += 1

    def fill(self, count: int, device: torch.device, seed: int = 0) -> None:
        """Hold `count` random unit directions and no others, as if the first task had offered them.

        What a step costs depends on how many there are, not on where they point: this is how costs are measured.
        """
        if not 0 < count <= self.capacity:
            raise ValueError(f"`count` must be from 1 to the capacity ({self.capacity}), got {count}")
        generator = torch.Generator(device).manual_seed(seed)
        for block in self.blocks:
            block.load(
                [
                    torch.randn(count, *shape, dtype=block.dtype, device=device, generator=generator)
                    for shape in block.slot_shapes()
                ],
                device,
            )
        self.slots = Slots([0] * count, list(range(count)), {0: count})
        self._reserved = count
        self._forget_products()
        norms = Products((True,) * len(self.channels_last), count).inverse_norms(self.blocks)
        for block in self.blocks:
            block.scale_(norms)

    # -- Looking ---------------------------------------------------------------------------------------

    @property
    def is_small(self) -> bool:
        """Whether all inner products cost no more than those of a sample: the calls cost more than the work."""
        return len(self) * self.size <= SMALL_WORK

    def dots(self, gradients: Matrices, index: Tensor | slice = ALL) -> Tensor:
        """Inner products with the directions of `index`, or with all of them, in float64."""
        parts = [block.dots(part, index) for block, part in self._with_gradients(gradients)]
        return (torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]).double()

    def inverse_norms(self, gradients: Matrices) -> Tensor:
        """1 / |b| of the directions b over the parameters that have a gradient; 0 where that norm is 0."""
        return self._products_of(_active(gradients)).inverse_norms(self.blocks)

    def extreme_cosines(
        self, gradients: Matrices, norm: float, dots: Tensor, index: Tensor | slice, kind: str
    ) -> tuple[float, float]:
        """Largest and smallest cosine of the gradients with the directions of `index`, given their inner products.

        Directions that are zero in the active parameters have no cosine and constrain nothing.
        """
        products = self._products_of(_active(gradients))
        inverse_norms = products.inverse_norms(self.blocks)[index]
        if products.has_zero:
            dots, inverse_norms = dots[inverse_norms > 0], inverse_norms[inverse_norms > 0]
        return extreme_cosines(dots, inverse_norms, norm, kind)

    def risk(self, update: Matrices) -> float:
        """The interference risk R(u; B), the largest (-<b, u>)_+ over the unit directions b (equation 2)."""
        return float((-self.dots(update) * self.inverse_norms(update)).max().clamp(min=0))

    def _largest_cosine(self, gradients: Matrices, norm: float) -> float:
        return self.extreme_cosines(gradients, norm, self.dots(gradients), ALL, "signed")[0]

    # -- Projecting ------------------------------------------------------------------------------------

    def project_(self, gradients: Matrices, norm: float, kind: str, dots: Tensor | None = None) -> None:
        """Project the gradients, of this norm and these inner products if known, off the directions, in place.

        Rounding is as large as the weights. Where that is not small against what is left of the gradient
        (directions nearly dependent, gradient nearly inside their span), the work is done in float64.
        """
        projection = self.projection(gradients, kind)
        present = [gradient for gradient in gradients if gradient is not None]
        if projection.rank >= sum(gradient.numel() for gradient in present):
            for gradient in present:
                gradient.zero_()
            return
        dots = self.dots(gradients) if dots is None else dots
        weights = projection.weights(dots)
        if projection.is_orthogonal and _rounding(present[0].dtype, norm, dots, weights) > ORTHOGONALITY:
            wide = [None if gradient is None else gradient.double() for gradient in gradients]
            self._subtract_(wide, projection.weights(self.dots(wide)))
            for gradient, exact in zip(present, (matrix for matrix in wide if matrix is not None), strict=True):
                gradient.copy_(exact)
        else:
            self._subtract_(gradients, weights)

    @property
    def spans_everything(self) -> bool:
        """Whether no direction at all is left: every gradient would be projected to zero."""
        if len(self) < max(self.size, 1):
            return False
        active = (True,) * sum(len(layout.columns) for layout in self.layouts)
        # Products of its own: looking must not change what the next step computes, not even in the last bit.
        return Span(Products(active, len(self)).gram(self.blocks)).rank >= self.size

    def _subtract_(self, gradients: Matrices, weights: Tensor) -> None:
        for block, part in self._with_gradients(gradients):
            block.subtract_(part, weights)

    def projection(self, gradients: Matrices, kind: str) -> Projection:
        """The projection, factored anew only when the memory or the active parameters changed."""
        key = (kind, _active(gradients))
        if key not in self._projections:
            gram = self._products_of(key[1]).gram(self.blocks)
            self._projections[key] = PROJECTIONS[kind](gram, self.slots.arrivals)
        return self._projections[key]

    def _products_of(self, active: tuple[bool, ...]) -> Products:
        if active not in self._products:
            if len(self._products) >= MAX_PATTERNS:
                self._forget_products()
            self._products[active] = Products(active, len(self))
        return self._products[active]

    def _with_gradients(self, gradients: Matrices) -> list[tuple[Block, Matrices]]:
        return [
            (block, part)
            for block, part in by_block(self.blocks, gradients)
            if any(gradient is not None for gradient in part)
        ]

    def _forget_products(self) -> None:
        self.version += 1
        self._products.clear()
        self._projections.clear()

    # -- State -----------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Plain containers and tensors; only slots in use. The memory can be loaded with `weights_only=True`."""
        return {
            "capacity": self.capacity,
            "generator": self.generator.get_state(),
            "sampler": self.sampler.state_dict(),
            "tasks": list(self.slots.tasks),
            "arrivals": list(self.slots.arrivals),
            "offered": dict(self.slots.offered),
            "blocks": [
                {"kind": block.kind, "tensors": [tensor.clone() for tensor in block.arranged(order, [0] * len(order))]}
                for block, order in by_block(self.blocks, self.channels_last)
            ],
            "products": [products.state_dict() for products in self._products.values()],
        }

    @staticmethod
    def from_state_dict(state: dict[str, Any], layouts: Sequence[Layout], device: torch.device) -> "Memory":
        """The memory that `state_dict` described, for parameters of these layouts, in the dtype it was saved in."""
        generator = torch.Generator()
        generator.set_state(state["generator"].cpu())
        blocks = [
            _loaded_block(layout, saved["kind"], saved["tensors"], device)
            for layout, saved in zip(layouts, state["blocks"], strict=True)
        ]
        memory = Memory(blocks, state["capacity"], generator)
        memory.sampler = Sampler.from_state_dict(state["sampler"])
        memory.slots = Slots(list(state["tasks"]), list(state["arrivals"]), dict(state["offered"]))
        held = {len(memory), len(memory.slots.arrivals), *(len(t) for block in blocks for t in block.tensors)}
        if len(held) > 1 or len(memory) > memory.capacity:
            raise ValueError(f"{max(held)} directions at most where {len(memory)} tasks are named")
        memory._reserved = len(memory)
        for saved in state["products"]:
            products = Products.from_state_dict(saved, device)
            memory._products[products.active] = products
        # As much room as the memory that was saved had, which grew by doubling: it holds as many bytes.
        memory._reserve(min(memory.capacity, _doubled_up_to(len(memory))))
        return memory


def _doubled_up_to(count: int) -> int:
    """The smallest power of two that is not below; 0 for 0."""
    return 1 << (count - 1).bit_length() if count else 0


def _loaded_block(layout: Layout, kind: str, tensors: Sequence[Tensor], device: torch.device) -> Block:
    dtype = tensors[0].dtype
    block: Block
    if kind == FactoredBlock.kind:
        block = FactoredBlock(layout, dtype, tensors[0].shape[1])
    elif kind == DenseBlock.kind:
        block = DenseBlock(layout, dtype)
    else:
        raise ValueError(f"a block of kind {kind!r}")
    block.load(tensors, device)
    return block


def _rounding(dtype: torch.dtype, norm: float, dots: Tensor, weights: Tensor) -> float:
    """What rounding can leave along a unit direction, relative to the norm of the projected gradient."""
    if dtype == torch.float64:
        return 0.0
    left = max(norm**2 - float(dots @ weights), 0.0) ** 0.5
    size = norm + float(weights.abs().sum())
    return torch.finfo(dtype).eps * size / left if left > 0 else float("inf")


def _active(gradients: Matrices) -> tuple[bool, ...]:
    return tuple(gradient is not None for gradient in gradients)
