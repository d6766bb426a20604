"""A memory as it was, to go back to: what is about to be overwritten is copied, and going back allocates nothing."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from sfao.gating._block import Block
from sfao.gating._known_products import copy_known, know
from sfao.gating._layout import Layout

if TYPE_CHECKING:
    from sfao.gating.memory import Memory


class Journal:
    """The slots, tensors and products of a memory when the journal was begun.

    Tensors that grow or move are replaced by others: those of before need not be copied, but for slots that were
    overwritten in them.
    """

    def __init__(self, memory: "Memory") -> None:
        self._memory = memory
        self._books = {name: getattr(memory, name) for name in ("capacity", "sampler", "reserved", "products")}
        self._slots, self._channels = memory.slots.copy(), list(memory.channels_last)
        self._randomness, self._turn = memory.generator.get_state(), memory.sampler.turn
        self._blocks = [(block, block.layout, list(block.tensors), block.count) for block in memory.blocks]
        self._known = copy_known(memory.products)
        self._before: dict[int, list[list[Tensor]]] = {}

    def keep(self, slots: Sequence[int]) -> None:
        """Copy these slots, which are about to be overwritten."""
        if not self._blocks or self._blocks[0][0].tensors[0] is not self._blocks[0][2][0]:
            return
        for slot in slots:
            if slot < self._blocks[0][3] and slot not in self._before:
                self._before[slot] = [block.copy_slot(slot) for block, *_ in self._blocks]

    def restore(self) -> None:
        """Let the memory be as it was; may be called again."""
        memory = self._memory
        for name, value in self._books.items():
            setattr(memory, name, value)
        memory.blocks[:] = [self._restore_block(*saved) for saved in self._blocks]
        for slot, saved in self._before.items():
            for block, tensors in zip(memory.blocks, saved, strict=True):
                block.set_slots([slot], tensors)
        memory.slots, memory.channels_last = self._slots.copy(), list(self._channels)
        memory.generator.set_state(self._randomness)
        memory.sampler.turn = self._turn
        know(memory.products, self._known)
        memory.version += 1

    @staticmethod
    def _restore_block(block: Block, layout: Layout, tensors: list[Tensor], count: int) -> Block:
        block.layout, block.count = layout, count
        block.hold_tensors(list(tensors))
        return block
