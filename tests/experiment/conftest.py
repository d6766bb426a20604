import pytest

from sfao.benchmarks.sources import Dataset, load_dataset


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return load_dataset("mnist-5k")
