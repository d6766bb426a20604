import pytest

from sfao.data.dataset import Dataset, load_dataset


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return load_dataset("mnist-5k")
