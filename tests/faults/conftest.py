from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sfao.lab.data import proofs, root
from tests.faults.data_files import SETTLED_SECONDS
from tests.faults.tally import Attack
from tests.lab.data.fetching.published import publish_mnist


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


@pytest.fixture
def _data_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Published files of this test, a cache folder that is not the user's, and proofs of files however new."""
    monkeypatch.setattr(root, "get_user_cache", lambda: tmp_path / "user")
    monkeypatch.setattr(proofs, "SETTLED_SECONDS", SETTLED_SECONDS)
    publish_mnist(monkeypatch, [])
