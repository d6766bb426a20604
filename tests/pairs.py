"""Products of several lists of cases, thinned to as many as have every pair of two cases in them."""

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import Any

import pytest


def cover_pairs(*lists: Iterable[Any]) -> list[Any]:
    """Return the product of the lists as parameters: those beyond a cover of all pairs are for `make soak`."""
    named = [list(one.items()) if isinstance(one, dict) else [(str(case), case) for case in one] for one in lists]
    chosen = _choose([len(one) for one in named])
    found = []
    for places in product(*(range(len(one)) for one in named)):
        names, cases = zip(*(one[place] for one, place in zip(named, places, strict=True)), strict=True)
        marks = [] if places in chosen else [pytest.mark.soak]
        found.append(pytest.param(*cases, id="-".join(names), marks=marks))
    return found


def _choose(sizes: Sequence[int]) -> set[tuple[int, ...]]:
    """Take the next case of the product that has the most pairs which none before it has, until none has any."""
    everything = list(product(*map(range, sizes)))
    missing = {pair for case in everything for pair in _list_pairs(case)}
    chosen = set()
    while missing:
        case = max(everything, key=lambda case: len(missing & _list_pairs(case)))
        chosen.add(case)
        missing -= _list_pairs(case)
    return chosen


def _list_pairs(case: Sequence[int]) -> set[tuple[tuple[int, int], tuple[int, int]]]:
    return set(combinations(enumerate(case), 2))
