"""Records read back, collected and refused."""

import json
from dataclasses import asdict

import pytest

from sfao.lab.paper.archive import Archive, collect, read_lines, read_runs, write_lines
from sfao.lab.paper.protocol import protocol
from sfao.lab.paper.scale import Scale
from sfao.lab.run.errors import FolderError
from tests.lab.paper.made import record
from tests.records import make_old

SGD, EWC = (protocol(1, "released").cells[row, ""] for row in ("SGD", "EWC"))


def leave(out, series, seed=0, **changes):
    """A run folder, as a run leaves it."""
    made = record(series, seed, **changes)
    folder = series.folder(out, seed, Scale(made.config["fraction"]))
    folder.mkdir(parents=True)
    made.save(folder)
    return made


def test_records_are_found_by_their_settings_whatever_seed_and_device():
    records = [record(SGD, 0), record(SGD, 3, device="cuda"), record(EWC, 0)]
    archive = Archive(records)
    assert archive.of(SGD) == records[:2]
    assert archive.of(EWC) == records[2:]
    assert archive.of(SGD, Scale(0.5)) == []
    assert len(archive) == 3


def test_runs_of_other_archives_stand_where_there_are_none():
    own, others = [record(SGD, 0)], [record(SGD, 0), record(SGD, 1), record(EWC, 2)]
    archive = Archive(own, [Archive([]), Archive(others)])
    assert archive.of(SGD) == own
    assert archive.of(EWC) == others[2:]
    assert archive.records == own


def test_settings_that_came_later_have_their_defaults():
    old = record(SGD)
    del old.config["fraction"]
    assert Archive([old]).of(SGD) == [old]


def test_what_is_collected_is_read_back_the_same_and_twice_changes_nothing(tmp_path):
    made = [leave(tmp_path / "runs", series, seed) for series in (SGD, EWC) for seed in (1, 0)]
    (file,) = collect(tmp_path / "runs", tmp_path / "records")
    assert file == tmp_path / "records" / "released" / "split-mnist.jsonl"
    assert sorted(map(str, read_lines(file))) == sorted(map(str, made))
    assert read_runs(tmp_path / "runs") != []
    before = file.read_bytes()
    collect(tmp_path / "runs", tmp_path / "records")
    assert file.read_bytes() == before


def test_collecting_adds_to_what_is_there_and_replaces_what_was_done_again(tmp_path):
    file = tmp_path / "records" / "released" / "split-mnist.jsonl"
    write_lines(file, [record(SGD, 0, 0.1), record(SGD, 1, 0.2)])
    again = leave(tmp_path / "runs", SGD, 1, last=0.9)
    collect(tmp_path / "runs", tmp_path / "records")
    assert Archive(read_lines(file)).of(SGD) == [record(SGD, 0, 0.1), again]


def test_slices_and_failures_are_not_collected(tmp_path):
    leave(tmp_path / "runs", SGD, 0, fraction=0.1)
    leave(tmp_path / "runs", EWC, 0, status="failed")
    with pytest.raises(FolderError, match="`collect` must be a folder that holds finished runs of whole data sets"):
        collect(tmp_path / "runs", tmp_path / "records")
    assert not (tmp_path / "records").exists()


@pytest.mark.parametrize("fault", ["other data", "damaged"])
def test_nothing_is_collected_unless_all_can_be(tmp_path, fault):
    leave(tmp_path / "runs", protocol(2, "released").cells["SGD", ""])
    leave(tmp_path / "runs", SGD, 1, data={"train": 600, "complete": False})
    file = tmp_path / "records" / "released" / "split-mnist.jsonl"
    write_lines(file, [record(SGD, 0)])
    if fault == "damaged":
        (tmp_path / "runs" / "released" / "split-mnist" / "sgd-1" / "record.json").write_text("{")
    said = "it is damaged" if fault == "damaged" else "some are on 60,000 .* and some on 600 training"
    with pytest.raises(FolderError, match=said):
        collect(tmp_path / "runs", tmp_path / "records")
    assert [path for path in (tmp_path / "records").rglob("*") if path.is_file()] == [file]
    assert read_lines(file) == [record(SGD, 0)]


def test_runs_on_other_values_are_not_collected(tmp_path):
    for seed, digest in enumerate("ab"):
        leave(tmp_path / "runs", SGD, seed, data={"digest": digest})
    with pytest.raises(
        FolderError, match="the same data, but some are on images of the digest a and some on those of b"
    ):
        collect(tmp_path / "runs", tmp_path / "records")
    assert not (tmp_path / "records").exists()


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(FolderError, match="`collect` must be a folder that holds finished runs"):
        collect(tmp_path, tmp_path / "records")
    assert read_runs(tmp_path) == []


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda line: line[: len(line) // 2], "it is damaged"),
        (lambda line: "[]", "it is damaged"),
        (lambda line: line.replace('"seed"', '"sede"'), "it is damaged"),
        (lambda line: line.replace('"lr": 0.001', '"lr": -1'), "`lr`: input should be greater than 0"),
        (
            lambda line: line.replace('"average_accuracy": 0.5', '"average_accuracy": 0.9'),
            "that of the accuracy matrix",
        ),
        (lambda line: line.replace('[0.5, 0.5, 0.5, 0.5, 0.5]], "in', '[0.5, 0.5]], "in'), "must be square"),
        (lambda line: line.replace('"train": 60000, ', ""), "`data.train` must be of type int"),
        (lambda line: line.replace('"seed": 0', '"seed": 7', 1), "`seed` must be that of `config`, 0, got 7"),
        (lambda line: line.replace('"method": "sgd"', '"method": "si"', 1), "`method` must be that of `config`"),
        (lambda line: line.replace('"machine"', '"engine"'), "`versions.machine` must say what it was made with"),
    ],
)
def test_a_damaged_line_is_named(tmp_path, damage, message):
    file = tmp_path / "split-mnist.jsonl"
    line = json.dumps(make_old(asdict(record(SGD))))
    assert damage(line) != line
    file.write_text(f"{line}\n{damage(line)}\n")
    with pytest.raises(FolderError, match=r"split-mnist\.jsonl:2 must be the record of a run") as error:
        read_lines(file)
    assert message in str(error.value)


def test_a_damaged_record_of_a_run_is_named(tmp_path):
    leave(tmp_path, SGD)
    file = SGD.folder(tmp_path, 0) / "record.json"
    file.write_text(file.read_text()[:-20])
    with pytest.raises(FolderError, match=r"record\.json must be the record of a run"):
        read_runs(tmp_path)
