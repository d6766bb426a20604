"""Random softened updates beside the reference twin: axes, shares, drifts, paths and updates are the twin's.

What differs is explained in `tests.faults.soft_updates`, each with a bound of its own: products and axes in float32, a
softness that is interpolated, parameters on the grid of their dtype.
"""

from collections.abc import Callable

from tests.faults.soft_updates import STEPS, TASKS, SoftCase
from tests.faults.tally import Attack, in_soak


def test_softened_updates_are_those_of_the_twin(attack: Callable[[str, str], Attack]) -> None:
    what = "random layers, inputs, dtypes, options, optimizers and gradients, beside the reference twin"
    beside = attack("a step with the subspace", what)
    for seed in range(in_soak(12, 1500)):
        case = SoftCase(seed)
        for _ in range(TASKS):
            for label, check in case.end_task():
                beside.try_it(label, check)
            for _ in range(STEPS):
                for outcome in case.step():
                    beside.try_it(outcome.label, outcome.check)
