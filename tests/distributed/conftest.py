from collections.abc import Iterator

import pytest

from tests.distributed.processes import end_groups


@pytest.fixture(scope="package", autouse=True)
def _end_groups() -> Iterator[None]:
    """Ranks end with the last test of them: other tests look at all processes there are."""
    yield
    end_groups()
