from dataclasses import replace

import pytest

from sfao.lab.data.dataset import Dataset, load_dataset
from sfao.lab.streams.stream import Benchmark


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return load_dataset("mnist-5k")


@pytest.fixture(scope="session")
def small_digits(digits: Dataset) -> Dataset:
    """The digits with a quarter of their pixels, and every fourth of those for testing."""
    return replace(
        digits,
        train_images=digits.train_images[..., ::2, ::2],
        test_images=digits.test_images[::4, ..., ::2, ::2],
        test_labels=digits.test_labels[::4],
    )


@pytest.fixture
def _small_digits(small_digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every run be one on the small digits."""
    monkeypatch.setattr(Benchmark, "load", lambda self, root=None: small_digits)
