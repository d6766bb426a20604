"""Memory that runs out at any operation of torch's: what was held is held, and the next attempt succeeds."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.faults.subjects import MEMORIES, Subject
from tests.faults.tally import Attack, in_soak
from tests.faults.test_interrupts import copy_subject, make_subject


class RunsOut(TorchDispatchMode):
    """Every operation from the n-th on that makes a tensor fails, until this ends: going back must need none."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self.remaining = place

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        self.remaining -= 1
        if self.remaining <= 0 and not func._schema.name.endswith(("_", "detach", "view", "slice", "alias", "select")):
            raise torch.OutOfMemoryError("out of memory")
        return func(*args, **(kwargs or {}))


def run_out(subject: Subject, operation: str, place: int, before: str) -> None:
    """Let memory run out at the n-th operation and compare what is held; then do it again, with memory."""
    around, outcome = subject.surroundings, "done"
    with RunsOut(place):
        try:
            getattr(subject, operation)()
        except torch.OutOfMemoryError:
            outcome = "refused"
    assert subject.surroundings == around, "model or thread are not as they were"
    if outcome == "refused":
        assert subject.write_memory() == before, "the memory is not as it was"
        getattr(subject, operation)()
    subject.step()
    counts = {len(block.used[0]) for layer in subject.gate.layers for block in layer.memory.blocks}
    held = {len(layer.memory) for layer in subject.gate.layers}
    assert counts == held, f"{counts} directions where {held} are in the books"


#: The subspace stores no gradients, so that there is nothing for it to remember.
CASES = [
    (memory, operation)
    for memory in dict.fromkeys(["dense directions", *[name for name in MEMORIES if in_soak(0, 1)]])
    for operation in ("remember", "consolidate")
    if (memory, operation) != ("subspace", "remember")
]


@pytest.mark.parametrize(("memory", "operation"), CASES)
def test_memory_runs_out(memory: str, operation: str, attack: Callable[[str, str], Attack]) -> None:
    begun = attack(f"{operation}, {memory}", "no memory from some operation on")
    before = make_subject(memory, "SFAO").write_memory()
    counting = RunsOut(10**9)
    subject = copy_subject(make_subject(memory, "SFAO"))
    with counting:
        getattr(subject, operation)()
    count = 10**9 - counting.remaining
    for place in range(1, count + 1, max(1, count // in_soak(8, count))):
        subject = copy_subject(make_subject(memory, "SFAO"))
        begun.try_it(f"operation {place}", partial(run_out, subject, operation, place, before))


def test_a_copy_is_equal() -> None:
    subject = make_subject("dense directions", "SFAO")
    assert copy.copy(subject).write_memory() == copy_subject(subject).write_memory() == subject.write_memory()
