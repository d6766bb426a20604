"""How long runs take: known from runs that are done, else predicted; the prediction follows the work."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sfao.lab.data.dataset import Dataset
from sfao.lab.paper import duration
from sfao.lab.paper.duration import Duration, format_seconds, predict_durations, sum_up
from sfao.lab.paper.protocol import protocol
from sfao.lab.paper.rehearsal import START, Rehearsal, rehearse
from sfao.lab.paper.runs import Plan
from sfao.lab.run.worker import Job
from tests.lab.paper.made import record

TABLE1 = {row: series for (row, _), series in protocol(1, "released").cells.items()}
PLAIN = Rehearsal(
    tasks=5, steps=100, evaluated=1000, first_step=0.01, later_step=0.02, held=25, per_direction=0.001, added=100,
    capacity=200, end_of_task=3.0, evaluation=0.0001,
)  # fmt: skip


def noise(train, test):
    """A data set of noise in the shape of MNIST."""
    parts = [
        part
        for count in (train, test)
        for part in (torch.randint(0, 256, (count, 1, 28, 28), dtype=torch.uint8), torch.arange(count) % 10)
    ]
    return Dataset("mnist", *parts, classes=10, mean=(0.4,), std=(0.3,), complete=True, embedded=False)


def test_the_time_is_that_of_all_steps_ends_and_evaluations():
    # Tasks 2 to 5 have 100, 200, 200 and 200 directions in memory, 25 of which a step of 0.02 s had.
    steps = 100 * (0.01 + 0.095 + 3 * 0.195)
    assert PLAIN.seconds == pytest.approx(START + steps + 5 * 3 + 6 * 1000 * 0.0001)
    assert replace(PLAIN, tasks=10).seconds > PLAIN.seconds
    assert replace(PLAIN, capacity=float("inf")).seconds > PLAIN.seconds
    assert replace(PLAIN, per_direction=0.0, later_step=0.001).seconds == pytest.approx(START + 5 + 15 + 0.6)


@pytest.mark.parametrize("row", ["EWC", "OGD"])
def test_every_method_can_be_rehearsed_and_what_stores_directions_is_seen_to(row):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = rehearse(TABLE1[row].config(), noise(320, 50))
    finally:
        torch.set_num_threads(threads)
    assert (found.tasks, found.steps, found.evaluated) == (5, 4, 50)
    assert found.seconds > START
    assert found.added == (2 if row in ("OGD", "SFAO") else 0)
    assert (found.held > 0) == (row in ("OGD", "SFAO"))


def test_a_run_that_was_done_tells_the_time_of_other_seeds_and_thresholds(monkeypatch):
    other = protocol(1, "released").sweep["SFAO 0.90"]
    done = record(TABLE1["SFAO"], 0, seconds=40.0)
    jobs = [Job(series.config(1), Path(name)) for name, series in (("a", TABLE1["SFAO"]), ("b", other))]
    monkeypatch.setattr(duration, "rehearse", lambda config, dataset: PLAIN)
    monkeypatch.setattr(duration, "load_dataset", lambda name, root: None)
    sgd = Job(TABLE1["SGD"].config(0), Path("c"))
    on_gpu = Job(TABLE1["SFAO"].config(0, device="cuda"), Path("d"))
    found = predict_durations(Plan(done=[done], left=[*jobs, sgd, on_gpu]), None).durations
    told = {folder.name: str(own) for folder, own in found.items()}
    assert told == {"a": "40 s", "b": "40 s", "c": "~87 s", "d": "~87 s"}


def test_a_run_that_cannot_be_tried_here_has_a_reason_and_no_time(monkeypatch):
    def fail(config, dataset):
        raise RuntimeError("no\nsuch device")

    monkeypatch.setattr(duration, "rehearse", fail)
    monkeypatch.setattr(duration, "load_dataset", lambda name, root: None)
    found = predict_durations(Plan(left=[Job(TABLE1["SGD"].config(), Path("a"))]), None)
    assert (found.durations, found.unknown) == ({}, {Path("a"): "no such device"})


def test_runs_share_the_workers_and_the_longest_takes_its_time():
    runs = [Duration(seconds) for seconds in (10.0, 10.0, 10.0, 60.0)]
    assert [sum_up(runs, workers) for workers in (1, 2, 4, 100)] == [90, 60, 60, 60]
    assert sum_up([], 2) == 0
    assert sum_up(runs[:3], 2) == 15


def test_times_are_told_as_one_would_say_them():
    assert [format_seconds(seconds) for seconds in (4.4, 89, 90, 3000, 5400, 12600)] == [
        "4 s", "89 s", "2 min", "50 min", "1.5 h", "3.5 h",
    ]  # fmt: skip
