"""Folders of runs that two machines have in turn."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfao.lab.launchers.mirror import Outbox, apply_changes, read_files, write_files
from sfao.lab.run.checkpoint import LATEST, PREVIOUS

NAMES = st.sampled_from([LATEST, PREVIOUS, "config.yaml", "steps.jsonl", "record.json", "logs/events"])


def read_all(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@given(st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=5)), max_size=12), st.sets(st.integers(0, 11)))
def test_after_every_exchange_the_folders_hold_the_same(tmp_path_factory, writings, exchanges):
    """Whatever is written and removed in between; the older checkpoint alone is the mirror's own."""
    away, here = tmp_path_factory.mktemp("away"), tmp_path_factory.mktemp("here")
    outbox = Outbox(away)
    for number, (name, data) in enumerate(writings):
        if data is None:
            (away / name).unlink(missing_ok=True)
        else:
            write_files(away, {name: data})
        if number in exchanges or number == len(writings) - 1:
            apply_changes(here, outbox.collect())
            there, arrived = read_all(away), read_all(here)
            there.pop(PREVIOUS, None)
            assert arrived.pop(PREVIOUS, None) is None or LATEST in there
            assert arrived == there


def test_the_checkpoint_before_the_last_is_kept_as_where_a_run_saves_its_own(tmp_path):
    away, here = tmp_path / "away", tmp_path / "here"
    outbox = Outbox(away)
    for data in (b"1", b"2", b"3"):
        write_files(away, {LATEST: data})
        assert outbox.has_checkpoint()
        apply_changes(here, outbox.collect())
        assert not outbox.has_checkpoint()
    assert read_all(here) == {LATEST: b"3", PREVIOUS: b"2"}
    (away / LATEST).unlink()
    write_files(away, {"record.json": b"{}"})
    apply_changes(here, outbox.collect())
    assert read_all(here) == {"record.json": b"{}"}


def test_what_has_not_changed_is_not_sent_again(tmp_path):
    outbox = Outbox(tmp_path)
    write_files(tmp_path, {"config.yaml": b"a", "steps.jsonl": b"b"})
    assert set(outbox.collect().files) == {"config.yaml", "steps.jsonl"}
    write_files(tmp_path, {"steps.jsonl": b"c"})
    assert outbox.collect().files == {"steps.jsonl": b"c"}
    assert outbox.collect().files == {}


@pytest.mark.parametrize("name", [".lock", ".checkpoint.pt.7.part", PREVIOUS])
def test_locks_and_unfinished_files_stay_where_they_are(tmp_path, name):
    (tmp_path / name).write_bytes(b"x")
    assert Outbox(tmp_path).collect().files == {}
    assert read_files(tmp_path) == {}
