"""Random updates beside the reference twin: every decision and every update is the same, or explained.

What is explained is in `tests.faults.updates`: entries on the grid of denormals, directions that are nearly dependent,
cosines on a threshold, and matrices with several best approximations of a low rank. Each has a bound of its own; what
is beyond it counts as broken.
"""

from collections.abc import Callable

from tests.faults.tally import Attack, in_parts, in_soak, list_part
from tests.faults.updates import STEPS, STORED, Case


@in_parts
def test_updates_are_those_of_the_twin(part: int, attack: Callable[[str, str], Attack]) -> None:
    beside = attack("a step with directions", "random layers, dtypes, options and gradients, beside the reference twin")
    for seed in list_part(range(in_soak(25, 1500)), part):
        case = Case(seed)
        for _ in range(2):
            for _ in range(STORED):
                case.remember()
            case.end_task()
            for _ in range(STEPS):
                for outcome in case.step():
                    beside.try_it(outcome.label, outcome.check)
