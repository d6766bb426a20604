"""Reading the end of a file that grows, and that a rollback cuts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfao.lab.live import tail as tail_module
from sfao.lab.live.tail import Tail, thin_out
from sfao.lab.safe_io import InputError

lines = st.lists(st.binary(max_size=5).map(lambda data: data.replace(b"\n", b"-") + b"\n"), max_size=8)


@given(st.lists(lines, max_size=5), st.integers(0, 3))
def test_each_whole_line_comes_once_however_the_file_grows(tmp_path_factory, parts, held_back):
    path = tmp_path_factory.mktemp("tail") / "steps.jsonl"
    tail, read, written = Tail(path), [], b""
    for part in parts:
        written += b"".join(part)
        path.write_bytes(written[: len(written) - held_back])  # the end is not there yet
        new = tail.read()
        assert not new.anew
        read += new.lines
    path.write_bytes(written)
    assert read + tail.read().lines == written.splitlines(keepends=True) if written else read == []
    assert tail.read().lines == []


@given(lines.filter(bool), st.integers(0, 8), lines)
def test_after_a_cut_the_lines_are_those_of_the_file(tmp_path_factory, before, kept, after):
    path = tmp_path_factory.mktemp("tail") / "steps.jsonl"
    path.write_bytes(b"".join(before))
    tail = Tail(path)
    read = tail.read().lines
    path.write_bytes(b"".join([*before[:kept], *after]))
    new = tail.read()
    read = new.lines if new.anew else read + new.lines
    # A cut that put the same last line in the same place is none that can be told, or need be.
    assert read[-1:] == [*before[:kept], *after][-1:]
    assert sum(map(len, read)) == path.stat().st_size


def test_a_file_that_is_not_there_has_no_lines_and_one_that_went_begins_anew(tmp_path):
    path = tmp_path / "steps.jsonl"
    tail = Tail(path)
    assert tail.read() == tail_module.NewLines([], anew=False)
    path.write_bytes(b"one\n")
    assert tail.read().lines == [b"one\n"]
    path.unlink()
    assert tail.read() == tail_module.NewLines([], anew=True)
    path.write_bytes(b"two\n")
    assert tail.read() == tail_module.NewLines([b"two\n"], anew=False)


def test_much_is_read_in_parts_and_a_line_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tail_module, "MOST_AT_ONCE", 10)
    path = tmp_path / "steps.jsonl"
    path.write_bytes(b"12345\n" * 3)
    tail = Tail(path)
    assert [len(tail.read().lines) for _ in range(4)] == [1, 1, 1, 0]
    with open(path, "ab") as file:
        file.write(b"x" * 50)
    with pytest.raises(InputError, match="at most 10 bytes"):
        tail.read()


@given(lines, st.integers(0, 40))
def test_of_many_lines_some_are_kept_evenly_and_the_last(lines, most):
    kept = thin_out(lines, most)
    assert kept == lines if sum(map(len, lines)) <= most else 1 <= len(kept) <= max(1, len(lines) // 2 + most)
    assert kept[-1:] == lines[-1:]


def test_thinned_lines_are_evenly_spaced():
    lines = [b"%03d\n" % number for number in range(100)]
    assert thin_out(lines, 40) == [b"%03d\n" % number for number in range(9, 100, 10)]


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "other").write_bytes(b"secret\n")
    (tmp_path / "steps.jsonl").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="not a link"):
        Tail(tmp_path / "steps.jsonl").read()
