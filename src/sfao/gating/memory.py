"""The memory of one layer: storing directions, moving them, and going back when storing fails."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sfao.gating._block import Block, FullStack, Matrices, Stack
from sfao.gating._journal import Journal
from sfao.gating._known_products import load_products, write_products
from sfao.gating._layout import Layout
from sfao.gating._products import Products, by_block
from sfao.gating._state_checks import check_slots, check_tensor, check_whole
from sfao.gating.cosine_rule import Sampler
from sfao.gating.eviction import Slots
from sfao.gating.storage import MEMORY_DTYPES, load_block


class Memory:
    """Up to `capacity` directions of the parameters of one layer; `products` is for looking at them.

    Gradients come as matrices, one per parameter, None for parameters without one.
    """

    def __init__(self, blocks: Sequence[Block], capacity: int, generator: torch.Generator) -> None:
        self.blocks = list(blocks)
        self.products = Products(self.blocks)
        self.capacity = capacity
        self.generator = generator
        self.sampler = Sampler(generator.initial_seed() + 1)
        self.slots = Slots()
        #: Another number whenever the directions, or where they lie, are others.
        self.version = 0
        #: The order of each parameter's gradient in memory: so many channels last, 0 for first.
        self.channels_last: list[int] = [0] * sum(len(block.layout.columns) for block in self.blocks)
        #: Slots that there is room for.
        self.reserved = 0
        self._journal: Journal | None = None

    def __len__(self) -> int:
        return len(self.slots.tasks)

    @property
    def bytes(self) -> int:
        return sum(block.bytes for block in self.blocks)

    @property
    def device(self) -> torch.device:
        return self.blocks[0].tensors[0].device

    # -- Storing ---------------------------------------------------------------------------------------

    def store(self, slots: Sequence[int], stacks: Sequence[Stack], scales: Tensor) -> None:
        """Store gradients, one stack per block, each times its scale, in these slots; `close` ends the storing."""
        self._note_change(slots)
        for block, stack in zip(self.blocks, stacks, strict=True):
            block.store(slots, stack, scales)

    def store_one(self, slot: int, gradients: Matrices, norm: float) -> None:
        """Store the direction of gradients of this norm in a slot."""
        alone = [None if gradient is None else gradient[None] for gradient in gradients]
        stacks = [FullStack(part) for _, part in by_block(self.blocks, alone)]
        self.store([slot], stacks, torch.tensor([1 / norm], dtype=torch.float64, device=self.device))

    def store_if_admitted(
        self, gradients: Matrices, norm: float, task: int, *, eviction: str, admit_below: float
    ) -> bool:
        """Store the direction of the gradients, unless it is too like one that is held or finds no slot."""
        if admit_below < 1 and len(self) and self.products.largest_cosine(gradients, norm) >= admit_below:
            return False
        slot = self.slots.offer(task, self.capacity, eviction, self.generator)
        if slot is None:
            return False
        self.store_one(slot, gradients, norm)
        return True

    def move(self, source: int, slot: int) -> None:
        """Copy the direction of one slot into another."""
        self._note_change([slot])
        for block in self.blocks:
            block.set_slots([slot], block.copy_slot(source))

    def close(self, slots: Slots) -> None:
        """Hold the directions that these slots name, after `store` and `move`."""
        self.slots = slots
        for block in self.blocks:
            block.resize(len(self))

    def set_capacity(self, capacity: int) -> None:
        """Let the memory hold up to `capacity` directions from now on."""
        if capacity < len(self):
            raise ValueError(f"`capacity` must be at least the {len(self)} directions held, got {capacity}")
        self.capacity = capacity

    def hold(self, tensors: Sequence[Sequence[Tensor]], device: torch.device) -> None:
        """Hold these directions, the tensors of each block, and no others, as if the first task had offered them."""
        for block, values in zip(self.blocks, tensors, strict=True):
            block.load(values, device)
        count = self.blocks[0].count
        self.slots = Slots([0] * count, list(range(count)), {0: count})
        self.reserved = count
        self._forget()

    def _note_change(self, slots: Sequence[int]) -> None:
        needed = max(slots) + 1
        if needed > self.reserved:
            self._reserve(min(self.capacity, _double_up_to(needed)))
        if self._journal is not None:
            self._journal.keep(slots)
        self.products.changed.update(slots)
        self.version += 1

    def _reserve(self, slots: int) -> None:
        if slots != self.reserved:
            for block in self.blocks:
                block.reserve(slots)
            self.reserved = slots
            self.version += 1

    def _forget(self) -> None:
        self.version += 1
        self.products.forget()

    # -- Moving ----------------------------------------------------------------------------------------

    def to(self, device: torch.device) -> None:
        if device != self.device:
            self._change_blocks(lambda block, _: block.to(device), self.channels_last)
            self._forget()

    def arrange(self, channels_last: Sequence[int | None]) -> None:
        """Hold the directions in the order of the gradients, None where there is no gradient to follow."""
        wanted = [old if new is None else new for old, new in zip(self.channels_last, channels_last, strict=True)]
        if wanted == self.channels_last:
            return
        orders = iter([list(order) for _, order in by_block(self.blocks, self.channels_last)])
        self._change_blocks(lambda block, order: block.arrange(next(orders), order), wanted)

    def _change_blocks(self, change: Callable[[Block, Sequence[int]], None], channels_last: list[int]) -> None:
        """Change all blocks, to this order, or none if that fails: an order of which some know is silently wrong."""
        journal = Journal(self)
        try:
            for block, order in by_block(self.blocks, channels_last):
                change(block, order)
            self.channels_last, self.version = channels_last, self.version + 1
        except BaseException:
            journal.restore()
            raise

    def add_block(self, block: Block) -> None:
        """Take more parameters in; the directions held so far are zero in them."""
        if self.blocks:
            block.to(self.device)
        block.reserve(self.reserved)
        block.resize(len(self))
        self.blocks.append(block)
        self.channels_last += [0] * len(block.layout.columns)
        self._forget()

    def grow(self, layouts: Sequence[Layout]) -> None:
        """Hold the directions of parameters with more rows, in which they are zero."""
        for block, layout in zip(self.blocks, layouts, strict=True):
            block.grow(layout)
        self._forget()

    # -- Going back ------------------------------------------------------------------------------------

    def begin_journal(self) -> Journal:
        """Return the memory as it is, to go back to until `end_journal`; slots are copied as they are overwritten."""
        self._journal = Journal(self)
        return self._journal

    def end_journal(self) -> None:
        """Stay as it is."""
        self._journal = None

    # -- State -----------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return plain containers and tensors, of slots in use only; `torch.load(weights_only=True)` reads them."""
        return {
            "capacity": self.capacity,
            "generator": self.generator.get_state(),
            "sampler": self.sampler.state_dict(),
            "tasks": list(self.slots.tasks),
            "arrivals": list(self.slots.arrivals),
            "offered": dict(self.slots.offered),
            "blocks": [self._block_state(*held) for held in by_block(self.blocks, self.channels_last)],
            "products": write_products(self.products),
        }

    @staticmethod
    def _block_state(block: Block, order: Sequence[int]) -> dict[str, Any]:
        # In the order of a contiguous gradient: whoever loads this need not know another.
        plain = block.reorder(order, [0] * len(order))
        return {"kind": block.kind, "tensors": [tensor.clone() for tensor in plain]}

    @staticmethod
    def from_state_dict(
        state: dict[str, Any],
        layouts: Sequence[Layout],
        device: torch.device,
        load: Callable[[str, Layout, Sequence[Tensor], torch.device], Block] = load_block,
        *,
        trusts_products: bool = True,
    ) -> "Memory":
        """Return the memory of parameters laid out so, its blocks loaded by `load`.

        A ValueError if the saved one is of others. Products among directions that are not to be trusted are computed
        anew.
        """
        generator = torch.Generator()
        generator.set_state(check_tensor("memory/generator", state["generator"], [torch.uint8]).cpu())
        if len(state["blocks"]) != len(layouts):
            raise ValueError(f"'memory/blocks' must be {len(layouts)}, got {len(state['blocks'])}")
        for saved in state["blocks"]:
            for tensor in saved["tensors"]:
                check_tensor("memory/blocks", tensor, list(MEMORY_DTYPES.values()))
        blocks = [
            load(saved["kind"], layout, saved["tensors"], device)
            for layout, saved in zip(layouts, state["blocks"], strict=True)
        ]
        check_slots(state["tasks"], state["arrivals"], state["offered"])
        memory = Memory(blocks, check_whole("memory/capacity", state["capacity"], 1), generator)
        memory.sampler = Sampler.from_state_dict(state["sampler"])
        memory.slots = Slots(list(state["tasks"]), list(state["arrivals"]), dict(state["offered"]))
        held = {len(memory), len(memory.slots.arrivals), *(len(t) for block in blocks for t in block.tensors)}
        if len(held) > 1 or len(memory) > memory.capacity:
            raise ValueError(f"{max(held)} directions at most where {len(memory)} tasks are named")
        memory.reserved = len(memory)
        if trusts_products:
            load_products(memory.products, state["products"], device)
        # As much room as the memory that was saved had, which grew by doubling: it holds as many bytes.
        memory._reserve(min(memory.capacity, _double_up_to(len(memory))))
        return memory


def _double_up_to(count: int) -> int:
    """Return the smallest power of two that is not below; 0 for 0."""
    return 1 << (count - 1).bit_length() if count else 0
