"""Interrupts at any line of ours: what a model, a thread and a memory were like, they are afterwards.

The memory is either as it was or as it would have become; never in between. What was interrupted can be done again,
with the same outcome.
"""

import copy
from collections.abc import Callable
from functools import cache, partial
from linecache import getline
from random import Random
from typing import Any

import pytest

from tests.faults.subjects import MEMORIES, Subject, list_lines, run_interrupted
from tests.faults.tally import Attack, in_parts, in_soak, list_part

OPERATIONS = ("step", "remember", "consolidate", "load_state_dict")
ALL_CASES = [(memory, kind) for memory in MEMORIES for kind in ("SFAO", "Gate")]
#: The last lines of the end of a task, each of which is tried.
LAST = 25
CASES = ALL_CASES[: in_soak(0, len(ALL_CASES))] or [("dense directions", "SFAO"), ("both", "Gate")]


@cache
def make_subject(memory: str, kind: str) -> Subject:
    return Subject(memory, kind)


def do(subject: Subject, operation: str, state: dict[str, Any]) -> None:
    if operation == "load_state_dict":
        subject.load(state)
    else:
        getattr(subject, operation)()


def is_ours(path: str) -> bool:
    return "/sfao/optim/" in path or "/sfao/gating/" in path


def interrupt(memory: str, kind: str, operation: str, place: int, outcomes: dict[str, str]) -> bool:
    """Interrupt an operation at the n-th line, check what is left, and do it again; tell whether it came so far."""
    subject = copy_subject(make_subject(memory, kind))
    state = copy.deepcopy(subject.optimizer.state_dict())
    around, gradients = subject.surroundings, [p.grad.clone() for p in subject.model.parameters()]
    came_so_far = run_interrupted(lambda: do(subject, operation, state), place, is_ours)
    assert subject.surroundings == around, "model or thread are not as they were"
    found = subject.write_memory()
    assert found in (outcomes["before"], outcomes["after"]), "the memory is neither as it was nor as it should become"
    if came_so_far and kind != "SFAO":
        now = [parameter.grad for parameter in subject.model.parameters()]
        assert all(a is not None and bool((a == b).all()) for a, b in zip(now, gradients, strict=True)), "gradients"
    if came_so_far and found == outcomes["before"]:
        do(subject, operation, state)
        assert subject.write_memory() == outcomes["after"], "done again, it came out otherwise"
    subject.step()
    return came_so_far


def copy_subject(subject: Subject) -> Subject:
    """Return an equal subject; a copy of an attached gate is attached to the copy of its optimizer."""
    other = copy.deepcopy(subject)
    for parameter, original in zip(other.model.parameters(), subject.model.parameters(), strict=True):
        parameter.grad = None if original.grad is None else original.grad.clone()
    if other.optimizer is not getattr(other.gate, "owner", None) and not hasattr(other.optimizer, "gate"):
        other.gate.attach(other.optimizer)
    return other


@in_parts
@pytest.mark.parametrize(("memory", "kind"), CASES)
def test_interrupts(memory: str, kind: str, part: int, attack: Callable[[str, str], Attack]) -> None:
    for operation in OPERATIONS:
        if operation == "remember" and memory == "subspace":
            continue
        begun = attack(f"{operation}, {kind}, {memory}", "interrupted at a line")
        subject = copy_subject(make_subject(memory, kind))
        outcomes = {"before": subject.write_memory()}
        do(subject, operation, copy.deepcopy(subject.optimizer.state_dict()))
        outcomes["after"] = subject.write_memory()
        places = find_places(memory, kind, operation)
        for place in list_part(Random(operation).sample(places, in_soak(2, len(places))), part):
            begun.try_it(f"line {place}", partial(check_one, memory, kind, operation, place, outcomes))


@pytest.mark.parametrize("memory", ["dense directions", "both"])
def test_interrupts_where_a_context_is_left(memory: str, attack: Callable[[str, str], Attack]) -> None:
    """There what the context holds is still held, and nothing but the one around it gives it back."""
    begun = attack(f"consolidate, SFAO, {memory}", "interrupted where a `with` begins or ends")
    subject = copy_subject(make_subject(memory, "SFAO"))
    outcomes = {"before": subject.write_memory()}
    lines = list_lines(subject.consolidate, is_ours)
    outcomes["after"] = subject.write_memory()
    for place in find_places(memory, "SFAO", "consolidate"):
        if getline(*lines[place - 1]).lstrip().startswith("with "):
            begun.try_it(f"line {place}", partial(check_one, memory, "SFAO", "consolidate", place, outcomes))


@pytest.mark.parametrize("operation", ["consolidate", "end_task"])
def test_momentum_ends_with_the_task_or_not_at_all(operation: str, attack: Callable[[str, str], Attack]) -> None:
    begun = attack(f"{operation}, SFAO, momentum", "interrupted at a line")
    moving = copy_subject(make_subject("dense directions", "SFAO"))
    moving.step()
    lines = len(list_lines(partial(end_task, copy.deepcopy(moving), operation), is_ours))
    places = Random(0).sample(range(1, lines - LAST), min(lines - LAST - 1, in_soak(5, 200)))
    for place in [*places, *range(lines - LAST, lines + 1)]:
        begun.try_it(f"line {place}", partial(check_momentum, copy.deepcopy(moving), operation, place))


def end_task(subject: Subject, operation: str) -> None:
    if operation == "consolidate":
        subject.consolidate()
    else:
        subject.optimizer.end_task()  # type: ignore[attr-defined]


def check_momentum(subject: Subject, operation: str, place: int) -> None:
    before, task = read_momentum(subject), subject.gate.task
    assert run_interrupted(partial(end_task, subject, operation), place, is_ours), "it was over before"
    found = read_momentum(subject)
    assert found == (before if subject.gate.task == task else []), "the momentum is not that of the task"


def read_momentum(subject: Subject) -> list[Any]:
    found = (state.get("momentum_buffer") for state in subject.optimizer.state.values())
    return [buffer.tolist() for buffer in found if buffer is not None]


def check_one(memory: str, kind: str, operation: str, place: int, outcomes: dict[str, str]) -> None:
    assert interrupt(memory, kind, operation, place, outcomes), "it was over before"


def find_places(memory: str, kind: str, operation: str) -> list[int]:
    """Return, for every line of ours that an operation comes by, where among them it is the first and the last time."""
    subject = copy_subject(make_subject(memory, kind))
    state = copy.deepcopy(subject.optimizer.state_dict())
    lines = list_lines(lambda: do(subject, operation, state), is_ours)
    first = {line: place for place, line in reversed(list(enumerate(lines, 1)))}
    last = {line: place for place, line in enumerate(lines, 1)}
    return sorted({*first.values(), *last.values()})
