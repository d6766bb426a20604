"""A new data set is its own description and one entry in the dict: everything else finds it there."""

import io
from pathlib import Path

import numpy as np
import pytest

from sfao.lab.data.arrays import Arrays
from sfao.lab.data.dataset import load_dataset
from sfao.lab.data.description import DatasetDescription, Layout
from sfao.lab.data.errors import DataError, MissingData
from sfao.lab.data.fetch import get_dataset
from sfao.lab.data.sets import DATASETS
from sfao.lab.data.verify import list_datasets, verify_dataset
from sfao.lab.streams.suite import BENCHMARKS, SPLIT, Benchmark
from tests.lab.data.publishers import assert_same, known, random_arrays, serving

NAME = "letters"
SETTINGS = {"model": {"name": "mlp", "hidden": 8}}
ARRAYS = random_arrays((1, 4, 4), 6, train=30, test=12)


def read(path: Path) -> Arrays:
    try:
        with np.load(path) as arrays:
            return Arrays(**arrays)
    except (ValueError, EOFError) as error:
        raise DataError(f"{path}: must be a whole .npz file ({error})") from error


def list_layouts(root: Path) -> list[Layout]:
    path = root / NAME / "letters.npz"
    return [Layout(path.parent, (path,), lambda: read(path))]


def published() -> bytes:
    file = io.BytesIO()
    np.savez(file, **dict(ARRAYS.items()))
    return file.getvalue()


@pytest.fixture
def site(monkeypatch, tmp_path):
    """The publisher's site, with the data set and a stream entered in the two dicts and nowhere else."""
    monkeypatch.setenv("SFAO_DATA", str(tmp_path / "data"))
    file = known("letters.npz", published())
    with serving({file.name: published()}) as server:
        description = DatasetDescription(
            name=NAME,
            title="Letters",
            terms="none",
            classes=6,
            train=30,
            test=12,
            mean=(0.5,),
            std=(0.25,),
            list_layouts=list_layouts,
            known_files=(file,),
            downloads=(file,),
            mirrors=(server.url,),
            folder=NAME,
        )
        monkeypatch.setitem(DATASETS, NAME, description)
        monkeypatch.setitem(BENCHMARKS, "split-letters", Benchmark(NAME, SPLIT, 3, SETTINGS))
        yield server


def list_entry():
    (entry,) = (entry for entry in list_datasets() if entry["name"] == NAME)
    return entry


@pytest.mark.usefixtures("site")
def test_it_is_listed_got_verified_and_loaded(tmp_path):
    assert (list_entry()["where"], list_entry()["download"]) == (None, len(published()))
    with pytest.raises(MissingData, match="Get it with: sfao data get letters"):
        load_dataset(NAME)
    assert [str(result.status) for result in verify_dataset(NAME)] == ["missing"]
    assert [str(result.status) for result in get_dataset(NAME)] == ["ok"]
    assert [str(result.status) for result in verify_dataset(NAME)] == ["ok"]
    entry = list_entry()
    assert entry["where"] == tmp_path / "data" / NAME / "letters.npz"
    for _ in range(2):  # read, then from the cache
        dataset = load_dataset(NAME)
        assert_same(Arrays(**{key: getattr(dataset, key).numpy() for key, _ in ARRAYS.items()}), ARRAYS)
        assert (dataset.name, dataset.classes, dataset.mean, dataset.std) == (NAME, 6, (0.5,), (0.25,))
        assert dataset.complete
        assert not dataset.embedded
    stream = BENCHMARKS["split-letters"].make_stream(dataset)
    assert [task.name for task in stream] == ["0/1", "2/3", "4/5"]
