"""The telemetry of a run: lines of a growing file, in a bounded number of buckets."""

import json
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfao.lab.live import history
from sfao.lab.live.history import MAX_BUCKETS, History, LineReader
from sfao.lab.safe_io import InputError

lines_of_a_file = st.lists(st.binary(max_size=5).map(lambda data: data.replace(b"\n", b"-") + b"\n"), max_size=8)


def line(number, task=0, loss=1.0, **layers):
    """Return the line of a step; of each layer the decisions so far, and telemetry."""
    decisions = {
        name: dict(zip(("accept", "project", "discard", "zero"), counts, strict=True))
        for name, (counts, _) in layers.items()
    }
    gate = {name: seen for name, (_, seen) in layers.items() if seen}
    return {"step": 20 * number, "task": task, "epoch": 0, "loss": loss, "decisions": decisions, "gate": gate}


def history_of(lines):
    made = History()
    for each in lines:
        made.add(each)
    return made


@given(st.integers(1, 700), st.integers(0, 2**16))
def test_there_are_few_buckets_and_they_lose_nothing(count, seed):
    losses = [(seed * number) % 97 / 7 for number in range(1, count + 1)]
    lines = [
        line(number, loss=loss, a=((number, 2 * number, 0, 0), {"kept": loss / 14}))
        for number, loss in enumerate(losses, start=1)
    ]
    buckets = history_of(lines).buckets
    assert min(count, MAX_BUCKETS) <= len(buckets) < 2 * MAX_BUCKETS
    assert len({bucket.lines for bucket in buckets[:-1]}) <= 1
    assert buckets[-1].step == 20 * count
    assert sum(bucket.lines for bucket in buckets) == sum(bucket.loss.count for bucket in buckets) == count
    assert isclose(sum(bucket.loss.total for bucket in buckets), sum(losses), abs_tol=1e-6)
    for bucket in buckets:
        assert bucket.layers[0].counts == [bucket.step / 20, 2 * bucket.step / 20, 0, 0]
        assert isclose(bucket.layers[0].means[0].total * 14, bucket.loss.total, abs_tol=1e-6)


def test_the_page_gets_counts_and_means_by_layer_and_null_for_missing_ones():
    second = {"a": ((20, 19, 1, 0), {"kept": 0.123456, "drift": 0.5}), "b": ((0, 0, 0, 40), {"cosine": -1.0})}
    made = history_of([line(1, loss=0.5, a=((20, 0, 0, 0), {})), line(2, loss=0.25, **second)])
    assert json.loads(json.dumps(made.as_json())) == {
        "layers": ["a", "b"],
        "taskEnds": [],
        "buckets": [
            [20, 0, 0, 0.5, [[20, 0, 0, 0, None, None, None]]],
            [40, 0, 0, 0.25, [[20, 19, 1, 0, 0.1235, 0.5, None], [0, 0, 0, 40, None, None, -1.0]]],
        ],
    }


def test_the_drift_of_a_bound_is_a_share_of_what_is_allowed():
    bound = {**line(1), "gate": {"a": {"drift": 0.05, "allowed": 0.1}}}
    assert history_of([bound]).as_json()["buckets"][0][4] == [[0, 0, 0, 0, None, 0.5, None]]


@pytest.mark.parametrize(
    "changes",
    [{"step": "20"}, {"step": -1}, {"loss": "low"}, {"decisions": []}, {"decisions": {"a": {"accept": 1}}}],
)
def test_an_invalid_line_is_refused_and_changes_no_bucket(changes):
    made = history_of([line(1, a=((20, 0, 0, 0), {}))])
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
        made.add({**line(2, a=((40, 0, 0, 0), {})), **changes})
    assert [bucket.step for bucket in made.buckets] == [20]


# -- The file --------------------------------------------------------------------------------------------------------


@given(st.lists(lines_of_a_file, max_size=5), st.integers(0, 3))
def test_each_whole_line_is_read_once(tmp_path_factory, parts, held_back):
    path = tmp_path_factory.mktemp("lines") / "steps.jsonl"
    reader, read, written = LineReader(path), [], b""
    for part in parts:
        written += b"".join(part)
        path.write_bytes(written[: len(written) - held_back])  # the end is not there yet
        lines, was_cut = reader.read()
        assert not was_cut
        read += lines
    path.write_bytes(written)
    read += reader.read()[0]
    assert b"".join(read) == written
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in read)
    assert reader.read()[0] == []


@given(lines_of_a_file.filter(bool), st.integers(0, 8), lines_of_a_file)
def test_after_a_cut_the_lines_are_those_of_the_file(tmp_path_factory, before, kept, after):
    path = tmp_path_factory.mktemp("lines") / "steps.jsonl"
    path.write_bytes(b"".join(before))
    reader = LineReader(path)
    read, _ = reader.read()
    path.write_bytes(b"".join([*before[:kept], *after]))
    lines, was_cut = reader.read()
    read = lines if was_cut else read + lines
    # A cut that leaves the same last line in the same place cannot be told from none.
    assert read[-1:] == [*before[:kept], *after][-1:]
    assert sum(map(len, read)) == path.stat().st_size


def test_an_endless_line_and_a_link_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(history, "MAX_LINE", 10)
    path = tmp_path / "steps.jsonl"
    path.write_bytes(b"12345\n" * 3)
    reader = LineReader(path)
    assert [len(reader.read()[0]) for _ in range(4)] == [1, 1, 1, 0]
    with open(path, "ab") as file:
        file.write(b"x" * 50)
    with pytest.raises(InputError, match="at most 10 bytes"):
        reader.read()
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(OSError, match="not a link"):
        LineReader(tmp_path / "link").read()
