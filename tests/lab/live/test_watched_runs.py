"""Real runs under their page: what is seen of them, and that they are the same as without."""

import json
from math import inf

from sfao.lab.run.errors import Interrupted
from sfao.lab.run.run_log import STEPS
from tests.lab.live.client import Events
from tests.lab.live.held_run import held_run, run_unwatched


def test_a_run_is_watched_from_its_first_steps_to_its_end_and_is_the_same(tmp_path):
    with held_run(tmp_path / "run") as held:
        events = Events(held.address)
        first = next(iter(events))
        assert (first["title"], first["place"]) == ("sfao on split-mnist-5k, seed 0", "Task 1 of 2, epoch 1 of 4")
        assert (first["step"], first["steps"], first["rows"], first["summary"]) == (1, 128, [], {})
        assert first["history"]["buckets"] == []
        held.go_to(40)
        state = events.wait_for(lambda state: len(state["history"]["buckets"]) == 2)
        assert [bucket[0] for bucket in state["history"]["buckets"]] == [20, 40]
        assert "left" in state["time"]
        held.go_to(100)
        state = events.wait_for(lambda state: len(state["history"]["buckets"]) == 5 and state["step"] == 100)
        assert (len(state["rows"]), state["place"]) == (1, "Task 2 of 2, epoch 3 of 4")
        assert state["summary"]["accuracy"] == state["rows"][0][0]
        assert state["history"]["taskEnds"] == [60]
        assert state["history"]["layers"] == ["hidden1", "classifier"]
        last = state["history"]["buckets"][-1]
        assert all(sum(layer[:4]) == 100 and layer[1] > 0 and 0 < layer[4] < 1 for layer in last[4])
        held.go_to(inf)
        *_, end = events
    assert end["ending"]["status"] == "done"
    assert end["ending"]["command"] == f"sfao report {tmp_path / 'run'}"
    assert end["rows"] == held.record.accuracy_matrix
    assert (end["step"], end["place"]) == (128, "All 2 tasks learned")
    assert "left" not in end["time"]
    alone = run_unwatched(tmp_path / "alone")
    for name in ("weights_sha256", "steps_sha256", "accuracy_matrix", "decisions"):
        assert getattr(alone, name) == getattr(held.record, name)


def test_a_resumed_run_shows_the_earlier_part_too(tmp_path):
    with held_run(tmp_path / "run") as held:
        held.go_to(90)
        events = Events(held.address)
        next(iter(events))
        held.stop()
        *_, stopped = events
    assert isinstance(held.error, Interrupted)
    assert stopped["ending"]["status"] == "interrupted"
    assert "--resume" in stopped["ending"]["text"]
    with held_run(tmp_path / "run", resume=True) as again:
        state = next(iter(Events(again.address)))
        assert (state["step"], len(state["rows"])) == (91, 1)
        assert [bucket[0] for bucket in state["history"]["buckets"]] == [20, 40, 60, 80]
    assert again.record.status == "done"


def test_lines_that_a_rollback_cut_are_gone_and_the_rollback_is_told(tmp_path):
    guard = {"guard.kind": "measured", "guard.rise": 1e-4, "guard.every": 10, "guard.rollbacks": 1, "validation": 0.2}
    with held_run(tmp_path / "run", "sgd", first=10, lr=0.3, **guard) as held:
        events = Events(held.address)
        next(iter(events))
        held.go_to(inf)
        *_, end = events
    assert len(held.record.rollbacks) == 1
    steps = [json.loads(line)["step"] for line in (tmp_path / "run" / STEPS).read_text().splitlines()]
    assert [bucket[0] for bucket in end["history"]["buckets"]] == steps
    assert "rollback in task 2" in end["notices"][0]


def test_telemetry_that_cannot_be_read_is_told_and_the_run_goes_on(tmp_path):
    with held_run(tmp_path / "run", first=20) as held:
        with open(tmp_path / "run" / STEPS, "a") as file:
            file.write("{}\n[1]\nno JSON\n")
        state = next(iter(Events(held.address)))
        assert state["notices"] == [f"a line of {STEPS} is damaged; this page leaves it out"]
        assert len(state["history"]["buckets"]) == 1
    assert held.record.status == "done"
