"""Timing steps that take turns in one process."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

Step = Callable[[], None]

#: Seconds: of steps that take longer, one is timed in a turn.
LONG = 0.3


@dataclass(frozen=True)
class Effort:
    """The length of a measurement: a number of turns for each step, or as many as fit into these seconds.

    The steps of the warm-up do what only first steps do: build factors, compile, capture.
    """

    turns: int = 30
    seconds: float = 1.5
    fewest: int = 3
    #: As many as a bound takes from one projection to the next.
    steps_a_turn: int = 8
    warm_up: int = 3


@dataclass(frozen=True)
class Timing:
    """Milliseconds per step: the median, and the quartiles around it."""

    ms: float
    low_ms: float
    high_ms: float
    measurements: int


def time_steps(
    steps: Mapping[str, Step], effort: Effort, device: torch.device, *, joined: bool = False
) -> dict[str, Timing]:
    """Return the time of each step.

    The first of a turn is not counted: in training, the step before is one of the same kind and leaves the caches as
    the next one needs them. Caches do not matter to steps that take long.

    `joined`: one measurement is of all steps of a turn, as it is on a GPU, which is waited for before and after.
    """
    joined = joined or device.type == "cuda"
    durations: dict[str, list[float]] = {name: [] for name in steps}
    long = {name: _warm_up(step, effort.warm_up, device) > LONG for name, step in steps.items()}
    began, turns = time.perf_counter(), 0
    while turns < effort.fewest or (turns < effort.turns and time.perf_counter() - began < effort.seconds):
        for name, step in steps.items():
            if not long[name]:
                step()
            count = 1 if long[name] and not joined else effort.steps_a_turn
            if joined:
                durations[name].append(_duration(step, count, device))
            else:
                durations[name] += [_duration(step, 1, device) for _ in range(count)]
        turns += 1
    return {name: _summary(values) for name, values in durations.items()}


def _warm_up(step: Step, count: int, device: torch.device) -> float:
    """Take the first steps, and return the seconds of the last of them."""
    for _ in range(count - 1):
        _duration(step, 1, device)
    return _duration(step, 1, device)


def _duration(step: Step, count: int, device: torch.device) -> float:
    """Return the seconds per step, over `count` steps."""
    clock = _clock(device)
    wait_for(device)
    start = clock()
    for _ in range(count):
        step()
    wait_for(device)
    return (clock() - start) / count


def counts_cpu_time(device: torch.device) -> bool:
    """Tell whether time is that of the processor.

    With one thread that is the time of the step on a quiet machine, and the time of other processes is not counted.
    """
    return device.type == "cpu" and torch.get_num_threads() == 1


def _clock(device: torch.device) -> Callable[[], float]:
    return time.process_time if counts_cpu_time(device) else time.perf_counter


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _summary(seconds: list[float]) -> Timing:
    low, middle, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return Timing(1e3 * middle, 1e3 * low, 1e3 * high, len(seconds))
