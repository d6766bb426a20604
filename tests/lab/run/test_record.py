import json
import shutil
from datetime import UTC, datetime, timedelta

import pytest

from sfao.lab.run.config import configure
from sfao.lab.run.loop import execute
from sfao.lab.run.record import RECORD, is_same_data, load_record, read_record
from tests.records import change_record


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    execute(configure("split-mnist-5k", "sgd", settings={"epochs": 1, "tasks": 2, "model.hidden": 8}), folder)
    return folder


def copy_with(folder, to, **changes):
    to.mkdir()
    shutil.copy(folder / RECORD, to)
    change_record(to, **changes)
    return to


def test_a_record_tells_when_the_run_ended(folder):
    finished = datetime.fromisoformat(load_record(folder).finished)
    assert finished.utcoffset() == timedelta(0)
    assert finished.microsecond == 0
    assert timedelta(0) <= datetime.now(UTC) - finished < timedelta(minutes=5)


def test_the_digest_of_a_record_cannot_be_left_out(folder, tmp_path):
    whole = json.loads((folder / RECORD).read_text())
    for left in (("sha256",), ("format",), ("format", "sha256")):
        text = json.dumps({name: value for name, value in whole.items() if name not in left})
        with pytest.raises(ValueError, match=r"it is damaged: .* put a copy in its place, or remove it"):
            read_record(text, "record.json")
    with pytest.raises(ValueError, match="`format` must be 2, got 3"):
        read_record(json.dumps({**whole, "format": 3}), "record.json")
    assert read_record(json.dumps(whole, sort_keys=True), "record.json") == load_record(folder)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"metrics": {}}, "`metrics.average_accuracy` must be that of the accuracy matrix, 0."),
        ({"memory_bytes": -5}, "`memory_bytes`: Input should be greater than or equal to 0, got -5"),
        ({"seconds": float("inf")}, "`seconds`: Input should be a finite number, got inf"),
        ({"config": {"fraction": "0.5"}}, "`config.fraction`: Input should be a valid number, got '0.5'"),
        ({"config": {"model": "mlp"}}, "`config.model`: Input should be a valid dictionary, got 'mlp'"),
        ({"accuracy_matrix": 5}, "`accuracy_matrix`: "),
        ({"seed": "many"}, "`seed`: "),
        ({"order": [0, 0]}, "`order` must name each task once, got [0, 0]"),
        ({"rollbacks": [{"task": 1}]}, "`rollbacks.0.step`: Field required"),
        ({"status": "dancing"}, "`status`: Input should be 'done', 'diverged' or 'failed', got 'dancing'"),
        ({"data": {"name": "mnist", "train": "all"}}, "`data.train`: Input should be a valid integer, got 'all'"),
        ({"finished": "2026-01-01T00:00:00"}, "`finished` must be a time with its zone, got '2026-01-01T00:00:00'"),
        ({"unheard": 1}, "unheard"),
    ],
)
def test_a_damaged_record_is_named_with_what_is_wrong(folder, tmp_path, changes, said):
    damaged = copy_with(folder, tmp_path / "run", **changes)
    with pytest.raises(ValueError, match=r"record\.json must be the record of a run, but it is damaged: ") as caught:
        load_record(damaged)
    assert str(caught.value).startswith(f"{damaged / RECORD} must be the record of a run, but it is damaged: ")
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_record_deeper_than_can_be_read_is_damaged(folder, tmp_path):
    deep = copy_with(folder, tmp_path / "run")
    (deep / RECORD).write_text("[" * 100_000)
    with pytest.raises(ValueError, match="it is damaged"):
        load_record(deep)


def test_the_same_data_are_those_of_one_digest_and_records_from_before_have_none():
    here = {
        "name": "mnist",
        "train": 9,
        "test": 3,
        "complete": True,
        "embedded": False,
        "digest": "a",
        "published": True,
    }
    before = {name: here[name] for name in ("name", "train", "test", "complete", "embedded")}
    for same in (here, before, {**here, "published": False}):
        assert is_same_data(here, same)
        assert is_same_data(same, here)
    for other in ({**here, "digest": "b"}, {**before, "train": 8}, {**here, "name": "x"}, {}):
        assert not is_same_data(here, other)
        assert not is_same_data(other, here)
