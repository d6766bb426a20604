"""Records are found by their settings, collected, and refused when they are damaged."""

import json

import pytest

from sfao.lab.paper.archive import Archive, collect, read_lines, read_runs, write_lines
from sfao.lab.paper.series import Scale, table_series
from sfao.lab.run.errors import FolderError
from tests.lab.paper.made_records import record

SGD, EWC = (table_series(1, "released")[row, ""] for row in ("SGD", "EWC"))


def leave(out, series, seed=0, **changes):
    """Write the record of a run to its folder."""
    made = record(series, seed, **changes)
    folder = series.folder(out, seed, Scale(made.config["fraction"]))
    folder.mkdir(parents=True)
    made.save(folder)
    return made


def test_records_are_found_by_settings_not_by_seed_or_device():
    records = [record(SGD, 0), record(SGD, 3, device="cuda"), record(EWC, 0)]
    archive = Archive(records)
    assert archive.find(SGD) == records[:2]
    assert archive.find(EWC) == records[2:]
    assert archive.find(SGD, Scale(0.5)) == []
    assert len(archive) == 3


def test_settings_that_a_record_does_not_have_count_as_their_defaults():
    old = record(SGD)
    del old.config["fraction"]
    assert Archive([old]).find(SGD) == [old]


def test_a_record_that_names_code_is_read_without_importing_it(tmp_path):
    foreign = record(SGD, method="not_there:Thing", config={**record(SGD).config, "method": "not_there:Thing"})
    write_lines(tmp_path / "kept.jsonl", [foreign, record(SGD)])
    archive = Archive(read_lines(tmp_path / "kept.jsonl"))
    assert len(archive) == 2
    assert archive.find(SGD) == [record(SGD)]


def test_collected_runs_read_back_the_same(tmp_path):
    made = [leave(tmp_path / "runs", series, seed) for series in (SGD, EWC) for seed in (1, 0)]
    (file,) = collect(tmp_path / "runs", tmp_path / "records")
    assert file == tmp_path / "records" / "released" / "split-mnist.jsonl"
    assert sorted(map(str, read_lines(file))) == sorted(map(str, made))
    before = file.read_bytes()
    collect(tmp_path / "runs", tmp_path / "records")
    assert file.read_bytes() == before


def test_collecting_keeps_other_runs_and_replaces_repeated_ones(tmp_path):
    file = tmp_path / "records" / "released" / "split-mnist.jsonl"
    write_lines(file, [record(SGD, 0, 0.1), record(SGD, 1, 0.2)])
    again = leave(tmp_path / "runs", SGD, 1, last=0.9)
    collect(tmp_path / "runs", tmp_path / "records")
    assert Archive(read_lines(file)).find(SGD) == [record(SGD, 0, 0.1), again]


def test_fractions_and_failures_are_not_collected(tmp_path):
    leave(tmp_path / "runs", SGD, 0, fraction=0.1)
    leave(tmp_path / "runs", EWC, 0, status="failed")
    with pytest.raises(FolderError, match="`RUNS` must hold finished runs of `sfao reproduce` on whole data sets"):
        collect(tmp_path / "runs", tmp_path / "records")
    assert not (tmp_path / "records").exists()


@pytest.mark.parametrize("data", [{"train": 600, "complete": False}, {"digest": "b" * 16}])
def test_runs_on_other_data_are_not_mixed(tmp_path, data):
    leave(tmp_path / "runs", table_series(2, "released")["SGD", ""])
    leave(tmp_path / "runs", SGD, 1, data=data)
    file = tmp_path / "records" / "released" / "split-mnist.jsonl"
    write_lines(file, [record(SGD, 0, data={"digest": "a" * 16})])
    with pytest.raises(FolderError, match=r"must be of runs on the same data, but sgd seed 1 .* differs from sgd seed"):
        collect(tmp_path / "runs", tmp_path / "records")
    assert [path for path in (tmp_path / "records").rglob("*") if path.is_file()] == [file]  # nothing was written


@pytest.mark.parametrize("damage", [lambda line: line[: len(line) // 2], lambda line: line.replace("0.5", "0.9", 1)])
def test_damage_is_named(tmp_path, damage):
    file, line = tmp_path / "split-mnist.jsonl", json.dumps(record(SGD).as_json())
    file.write_text(f"{line}\n{damage(line)}\n")
    with pytest.raises(FolderError, match=r"split-mnist\.jsonl:2 must be the record of a run"):
        read_lines(file)
    leave(tmp_path, SGD)
    file = SGD.folder(tmp_path, 0) / "record.json"
    file.write_text(damage(file.read_text()))
    with pytest.raises(FolderError, match=r"record\.json must be the record of a run"):
        read_runs(tmp_path)
