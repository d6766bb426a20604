"""Interrupts and errors while ranks hold each other's memory: afterwards each holds its own again."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sfao.optim._sharding.gathering import Gathering
from tests.faults.subjects import Subject, list_lines, run_interrupted
from tests.faults.tally import Attack


class OneRank:
    """Shards of which there is one: it has all columns."""

    def most(self, columns: int) -> int:
        return columns

    def gather(self, buffer: Tensor) -> Tensor:
        return buffer.clone()[None]


def make_gathering() -> tuple[Subject, Gathering]:
    subject = Subject("factored directions")
    subject.gate.layers += Subject("subspace").gate.layers
    shards: Any = OneRank()
    return subject, Gathering(subject.gate.layers, shards)


def find_places(subject: Subject) -> list[int]:
    """Return where in memory the layers hold what they remember."""
    spaces = [tensor for layer in subject.gate.layers for space in layer.spaces for tensor in space._tensors()]
    blocks = [tensor for layer in subject.gate.layers for block in layer.memory.blocks for tensor in block.tensors]
    return [tensor.data_ptr() for tensor in (*spaces, *blocks)]


def is_ours(path: str) -> bool:
    return path.endswith(("gathering.py", "_whole_or_not.py"))


def test_interrupts(attack: Callable[[str, str], Attack]) -> None:
    subject, gathering = make_gathering()
    before = find_places(subject)
    seen: list[list[int]] = []
    work = partial(gathering.work_whole, lambda: seen.append(find_places(subject)))
    lines = len(list_lines(work, is_ours))
    assert seen[0] != before
    begun = attack("memories that ranks hold together", "interrupted at a line")

    def check(place: int) -> None:
        assert run_interrupted(work, place, is_ours), "it was over before"
        assert find_places(subject) == before, "memories of other ranks are held"
        seen.clear()
        work()
        assert seen[0] != before, "memories are not whole any more"

    for place in range(1, lines + 1):
        begun.try_it(f"line {place}", partial(check, place))


def test_out_of_memory(attack: Callable[[str, str], Attack], monkeypatch: Any) -> None:
    subject, gathering = make_gathering()
    before = find_places(subject)
    begun = attack("memories that ranks hold together", "out of memory while they are joined")
    join, left = gathering._join, 0

    def fail(*arguments: Any) -> Tensor:
        nonlocal left
        left -= 1
        if left < 0:
            raise torch.OutOfMemoryError("out of memory")
        return join(*arguments)

    def check(count: int) -> None:
        nonlocal left
        left = count
        try:
            gathering.work_whole(lambda: None)
        except torch.OutOfMemoryError:
            assert find_places(subject) == before, "memories of other ranks are held"
        else:
            raise AssertionError("nothing failed")

    monkeypatch.setattr(gathering, "_join", fail)
    for count in range(len(gathering._places)):
        begun.try_it(f"tensor {count}", partial(check, count))
