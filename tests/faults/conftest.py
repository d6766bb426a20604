from collections.abc import Callable, Iterator

import pytest

from tests.faults.tally import Attack


@pytest.fixture
def attack() -> Iterator[Callable[[str, str], Attack]]:
    """Begin attacks by `attack(target, what)`; each is counted, and fails the test at its end if a trial broke."""
    begun: list[Attack] = []

    def begin(target: str, what: str) -> Attack:
        begun.append(Attack(target, what))
        return begun[-1]

    yield begin
    for each in begun:
        each.end()
