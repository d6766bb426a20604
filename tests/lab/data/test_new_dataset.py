"""A new data set is its own description and one entry in the dict: everything else finds it there."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sfao.lab.cli.app import app
from sfao.lab.data.dataset import load_dataset
from sfao.lab.data.description import DatasetDescription
from sfao.lab.data.errors import DataError, MissingData
from sfao.lab.data.fetching.get import get_dataset
from sfao.lab.data.fetching.listing import list_datasets
from sfao.lab.data.fetching.verify import verify_dataset
from sfao.lab.data.file_check import DigestCheck
from sfao.lab.data.formats.file_layout import Arrays, FileLayout
from sfao.lab.data.publication import Download, Publication
from sfao.lab.data.sets import DATASETS
from sfao.lab.streams.suite import BENCHMARKS, SPLIT, Benchmark, make_stream
from tests.lab.data.fetching.published import known
from tests.lab.data.fetching.server import serving
from tests.lab.data.publishers import assert_same, random_arrays

NAME = "letters"
SETTINGS = {"model": {"name": "mlp", "hidden": 8}}
ARRAYS = random_arrays((1, 4, 4), 6, train=30, test=12)


def read(path: Path) -> Arrays:
    try:
        with np.load(path) as arrays:
            return Arrays(**arrays)
    except (ValueError, EOFError) as error:
        raise DataError(f"{path}: must be a whole .npz file ({error})") from error


def list_layouts(root: Path) -> list[FileLayout]:
    path = root / NAME / "letters.npz"
    return [FileLayout(path.parent, (path,), lambda: read(path))]


def published() -> bytes:
    file = io.BytesIO()
    np.savez(file, **dict(ARRAYS.items()))
    return file.getvalue()


@pytest.fixture
def site(monkeypatch, tmp_path):
    """The publisher's site, with the data set and a stream entered in the two dicts and nowhere else."""
    monkeypatch.setenv("SFAO_DATA", str(tmp_path / "data"))
    file = known("letters.npz", published())
    with serving(files={file.name: published()}) as server:
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
            verify=DigestCheck((file,), read),
            publication=Publication(NAME, (Download(file, (server.url,)),), archive=False, unpacked_size=file.size),
        )
        monkeypatch.setitem(DATASETS, NAME, description)
        monkeypatch.setitem(BENCHMARKS, "split-letters", Benchmark(NAME, SPLIT, 3, SETTINGS))
        yield server


def list_entry():
    (entry,) = (entry for entry in list_datasets() if entry.name == NAME)
    return entry


@pytest.mark.usefixtures("site")
def test_it_is_listed_got_verified_and_loaded(tmp_path):
    assert (list_entry().where, list_entry().download) == (None, len(published()))
    with pytest.raises(MissingData, match="Get it with: sfao data get letters"):
        load_dataset(NAME)
    assert [str(result.status) for result in verify_dataset(NAME)] == ["missing"]
    assert [str(result.status) for result in get_dataset(NAME)] == ["ok"]
    assert [str(result.status) for result in verify_dataset(NAME)] == ["ok"]
    entry = list_entry()
    assert (entry.where, entry.complete) == (tmp_path / "data" / NAME / "letters.npz", True)
    assert (entry.train_here, entry.test_here) == (30, 12)
    for _ in range(2):  # read, then from the cache
        dataset = load_dataset(NAME)
        assert_same(Arrays(**{key: getattr(dataset, key).numpy() for key, _ in ARRAYS.items()}), ARRAYS)
        assert (dataset.name, dataset.classes, dataset.mean, dataset.std) == (NAME, 6, (0.5,), (0.25,))
        assert dataset.complete
        assert not dataset.embedded


@pytest.mark.usefixtures("site")
def test_damage_is_found(tmp_path):
    (path,) = (result.path for result in get_dataset(NAME))
    path.write_bytes(b"no letters")
    assert [str(result.status) for result in verify_dataset(NAME)] == ["differs"]
    assert list_entry().train_here is None


@pytest.mark.usefixtures("site")
def test_its_stream_is_made_from_its_entry():
    get_dataset(NAME)
    options = {"tasks": None, "scenario": "domain", "seed": 0, "order": None, "validation": 0.0}
    stream = make_stream("split-letters", load_dataset(NAME), **options)
    assert [task.name for task in stream] == ["0/1", "2/3", "4/5"]


@pytest.mark.usefixtures("site")
def test_a_subset_is_accepted_by_command_and_watched_from_then_on(tmp_path):
    def verify(*arguments):
        return CliRunner().invoke(app, ["data", "verify", *arguments])

    def write(seed):
        np.savez(path, **dict(random_arrays((1, 4, 4), 6, train=12, test=6, seed=seed).items()))

    path = tmp_path / "data" / NAME / "letters.npz"
    path.parent.mkdir(parents=True)
    write(seed=0)
    assert load_dataset(NAME).published is False
    assert verify(NAME).exit_code == 1
    assert verify("--accept").exit_code == 2
    assert verify(NAME, "--accept").exit_code == 0
    assert json.loads(verify(NAME, "--json").stdout)[0]["status"] == "accepted"
    write(seed=1)
    result = json.loads(verify(NAME, "--json").stdout)[0]
    assert result["status"] == "differs"
    assert result["detail"].startswith("must be as it was accepted on")
    with pytest.raises(DataError, match=r"letters.npz: must be as it was accepted on .*, got other bytes\n.* --accept"):
        load_dataset(NAME)
    path.write_bytes(published())  # what is published needs nobody's consent
    assert load_dataset(NAME).published is True


@pytest.mark.usefixtures("site")
def test_a_damaged_cache_fetches_nothing_and_is_made_again(site, tmp_path):
    get_dataset(NAME)
    load_dataset(NAME)
    (array,) = (tmp_path / "data" / ".sfao-cache").glob("*/train_labels.bin")
    array.write_bytes(bytes(array.stat().st_size))
    requests = len(site.requests)
    assert [str(result.status) for result in get_dataset(NAME)] == ["ok"]
    assert len(site.requests) == requests
    found = CliRunner().invoke(app, ["data", "verify", NAME])
    assert found.exit_code == 1
    assert "train_labels.bin: differs" in found.stderr
    load_dataset(NAME)
    assert CliRunner().invoke(app, ["data", "verify", NAME]).exit_code == 0


@pytest.mark.usefixtures("site")
def test_the_command_line_knows_it():
    def sfao(*arguments):
        return CliRunner().invoke(app, arguments)

    assert "not here: sfao data get letters" in sfao("data", "list").stdout
    assert sfao("data", "get", NAME).exit_code == 0
    assert json.loads(sfao("data", "verify", NAME, "--json").stdout)[0]["status"] == "ok"
    assert "(did you mean 'letters'?)" in sfao("data", "get", "leters").stderr
    known = json.loads(sfao("list", "--json").stdout)["benchmarks"]["split-letters"]
    assert known == {"data": NAME, "kind": "split", "tasks": 3, "settings": SETTINGS}
    assert "split-letters" in sfao("list").stdout
