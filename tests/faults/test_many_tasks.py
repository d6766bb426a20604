"""Many tasks one after the other: what is held does not grow with their number, and nor does the time of a step."""

from collections.abc import Callable
from time import perf_counter

import pytest

from tests.faults.subjects import MEMORIES, Subject
from tests.faults.tally import Attack, in_soak

TASKS = in_soak(30, 200)
#: The fastest steps of so many of the first and of the last tasks are compared, with a generous limit, in a soak alone:
#: the few tasks of the short form say nothing of time on a busy machine.
TIMED, SLOWER = 10, in_soak(float("inf"), 2.0)


@pytest.mark.parametrize("memory", MEMORIES)
def test_memory_and_time_stay_flat(memory: str, attack: Callable[[str, str], Attack]) -> None:
    begun = attack(f"many tasks, {memory}", "memory, workspace and the time of a step, first and last compared")
    subject = Subject(memory)
    times, sizes = [], []
    for number in range(2, TASKS):
        subject.backward(number)
        start = perf_counter()
        subject.step()
        times.append(perf_counter() - start)
        subject.consolidate(number)
        sizes.append((subject.gate.memory_bytes, sum(len(layer.memory) for layer in subject.gate.layers)))

    def check() -> None:
        assert sizes[-1] == sizes[TIMED], f"{sizes[TIMED]} bytes and directions became {sizes[-1]}"
        early, late = min(times[1 : TIMED + 1]), min(times[-TIMED:])
        assert late <= SLOWER * early, f"a step of {early:.4f} s became one of {late:.4f} s"
        assert subject.gate.task == TASKS, f"{subject.gate.task} tasks"

    begun.try_it(f"{TASKS} tasks", check)
