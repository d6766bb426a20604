import os
import signal
import threading
import time
from dataclasses import replace
from multiprocessing import active_children

import pytest

from sfao.lab.run import pool
from sfao.lab.run.config import configure
from sfao.lab.run.errors import Interrupted
from sfao.lab.run.jobs import Begun, Failure, Job
from sfao.lab.run.loop import execute
from sfao.lab.run.pool import Assignment, cores, do_run, run_all, summarise_error, throttle
from sfao.lab.run.progress import Update
from sfao.lab.run.record import Record

START_WORKER = pool.start_worker


@pytest.fixture
def _spawned_workers(monkeypatch):
    """Workers start as they do for users."""
    monkeypatch.setattr(pool, "start_worker", START_WORKER)


def job(folder, seed=0, **settings):
    return Job(configure("split-mnist-5k", "sgd", seed=seed, settings={"epochs": 1, **settings}), folder)


@pytest.mark.usefixtures("_spawned_workers")
def test_runs_end_as_they_would_alone_and_one_that_fails_or_diverges_harms_no_other(tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # left to itself, torch takes all cores
    (tmp_path / "file").write_text("a file, where a folder is needed")
    jobs = [job(tmp_path / "wild", lr=1e30), *(job(tmp_path / str(n), seed=n) for n in (0, 1)), job(tmp_path / "file")]
    heard = []
    environment = dict(os.environ)
    diverged, *done, failed = run_all(jobs, workers=2, watch=lambda job, event: heard.append((job, event)))
    assert dict(os.environ) == environment
    assert failed.error == f"FolderError: `out` must be a folder, got the file {tmp_path / 'file'}"
    assert "Traceback" in failed.traceback
    assert diverged.status == "diverged"
    alone = execute(jobs[1].config, tmp_path / "alone")
    assert [record.status for record in done] == ["done", "done"]
    assert done[0].weights_sha256 == alone.weights_sha256 != done[1].weights_sha256
    assert [record.versions["threads"] for record in done] == ["1", "1"]
    assert active_children() == []
    for each in jobs:
        own = [event for job, event in heard if job is each]
        assert isinstance(own[0], Begun)
        assert isinstance(own[-1], Record | Failure)
        assert all(isinstance(event, Update) for event in own[1:-1])


@pytest.mark.usefixtures("_spawned_workers")
def test_a_worker_that_is_killed_fails_its_run_and_is_replaced(tmp_path):
    jobs = [job(tmp_path / name, epochs=1000) for name in ("killed", "asked")] + [job(tmp_path / "done")]
    signals = {jobs[0].folder: signal.SIGKILL, jobs[1].folder: signal.SIGTERM}

    def send(running, event):
        if isinstance(event, Update) and (number := signals.pop(running.folder, None)):
            (worker,) = active_children()
            os.kill(worker.pid, number)

    killed, asked, done = run_all(jobs, workers=1, watch=send)
    assert killed.error == "its process was killed by SIGKILL (kill -9, or out of memory)"
    assert asked.error == "its process was asked to stop (SIGTERM)"
    assert done.status == "done"
    # A plain kill leaves time to save the state.
    assert not (jobs[0].folder / "checkpoint.pt").exists()
    assert (jobs[1].folder / "checkpoint.pt").exists()


def test_more_jobs_are_asked_for_when_none_is_left_and_know_of_all_that_ended(tmp_path):
    ended, asked = [], []

    def refill():
        asked.append(len(ended))
        return [job(tmp_path / f"{len(asked)}-{n}", seed=n) for n in range(2)] if len(asked) < 3 else []

    def watch(job, event):
        if isinstance(event, Record):
            ended.append(job.folder.name)

    records = run_all([job(tmp_path / "0-0")], workers=1, watch=watch, refill=refill)
    assert ended == ["0-0", "1-0", "1-1", "2-0", "2-1"]
    assert asked == [1, 3, 5]
    assert [record.seed for record in records] == [0, 0, 1, 0, 1]
    assert active_children() == []


def test_stopping_saves_what_runs_starts_nothing_more_and_leaves_nobody(tmp_path, capfd):
    jobs = [job(tmp_path / str(n), epochs=1000) for n in range(3)]
    updates = []
    with pytest.raises(Interrupted):
        run_all(
            jobs,
            workers=1,
            watch=lambda job, event: updates.append(event) if isinstance(event, Update) else None,
            stopping=lambda: bool(updates),
        )
    assert (tmp_path / "0" / "checkpoint.pt").exists()
    assert not (tmp_path / "1").exists()
    assert active_children() == []
    assert capfd.readouterr() == ("", "")


def test_a_signal_to_all_processes_at_once_fails_no_run(tmp_path):
    asked, failures = [], []

    def watch(job, event):
        if isinstance(event, Failure):
            failures.append(event)
        if isinstance(event, Update) and not asked:
            (worker,) = active_children()
            os.kill(worker.pid, signal.SIGTERM)
            asked.append(None)
            time.sleep(1)  # the worker has saved its state and says so before it is asked

    with pytest.raises(Interrupted):
        run_all([job(tmp_path / "run", epochs=1000)], watch=watch, stopping=lambda: bool(asked))
    assert failures == []
    assert (tmp_path / "run" / "checkpoint.pt").exists()


@pytest.mark.usefixtures("_spawned_workers")
def test_stopping_does_not_wait_for_a_worker_that_is_still_starting(tmp_path):
    began = time.monotonic()
    with pytest.raises(Interrupted):
        run_all([job(tmp_path / "run")], stopping=lambda: True)
    assert time.monotonic() - began < 1
    assert active_children() == []
    assert not (tmp_path / "run").exists()


def test_no_jobs_need_no_workers():
    assert run_all([]) == []


def test_cores_are_those_this_process_may_use():
    mine = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(mine)})
        assert cores() == 1
    finally:
        os.sched_setaffinity(0, mine)
    assert cores() == len(mine)


def test_updates_are_thinned_out():
    sent = []
    report = throttle(sent.append)
    for number in range(1000):
        report(number)
    assert sent[0] == 0
    assert len(sent) < 10


def test_an_exception_is_told_in_one_line():
    assert summarise_error(ValueError("two\n   lines")) == "ValueError: two lines"
    assert summarise_error(KeyError()) == "KeyError"
    assert len(summarise_error(ValueError("x" * 10_000))) < 400


@pytest.mark.parametrize(("asked", "saved"), [(0.0, True), (1e6, False)])
def test_a_run_saves_as_often_as_its_job_says(tmp_path, asked, saved):
    seen = []
    wanted = replace(job(tmp_path / "run", tasks=2, batch_size=40), checkpoint_seconds=asked)
    ending = do_run(
        Assignment(wanted, data_root=None, resume=False),
        lambda update: seen.append((tmp_path / "run" / "checkpoint.pt").exists()),
        threading.Event(),
    )
    assert isinstance(ending, Record)
    assert seen == [saved] * 5
