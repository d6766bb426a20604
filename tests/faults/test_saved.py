"""A run that is asked to stop has saved its state, or says what is lost."""

import fcntl
import os
import signal
import subprocess
import sys
import termios
import time

import pytest

from sfao.lab.cli.execute import stop_signals
from sfao.lab.run import pool
from sfao.lab.run.checkpoint import load_checkpoint
from sfao.lab.run.errors import Interrupted
from sfao.lab.run.jobs import Job
from sfao.lab.run.pool import run_all
from sfao.lab.run.progress import Update
from tests.faults.small_runs import check_same, do_run, make_config, save_after_every_step


def test_a_signal_asks_to_stop_and_the_run_goes_on_from_its_last_step(tmp_path, attack, monkeypatch):
    save_after_every_step(monkeypatch)
    tried = attack("run", "SIGINT, SIGTERM and SIGHUP in the middle of a task")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        folder = tmp_path / number.name

        def trial(folder=folder, number=number):
            def send(update):
                if update.step == 4:
                    os.kill(os.getpid(), number)

            with stop_signals() as stopping, pytest.raises(Interrupted):
                do_run(make_config(), folder, report=send, stopping=stopping)
            assert load_checkpoint(folder).state["position"]["steps"] == 4
            check_same(do_run(make_config(), folder), folder)

        tried.try_it(number.name, trial)


def test_what_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals() as stopping:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stopping()
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_pool_tells_which_runs_had_no_time_to_save_and_saves_when_its_watcher_fails(tmp_path, attack, monkeypatch):
    tried = attack("pool of workers", "no time to save, and a terminal that is gone")
    job = Job(make_config(epochs=2000), tmp_path / "slow-0")
    began = []

    def too_late():
        monkeypatch.setattr(pool, "GRACE_SECONDS", 0.0)
        with pytest.raises(Interrupted) as caught:
            run_all([job], workers=1, watch=lambda job, event: began.append(event), stopping=lambda: len(began) > 1)
        assert caught.value.unsaved == {"slow-0": "not done within 0 s"}
        said = caught.value.describe("go on")
        assert said.startswith("interrupted; saved, but for the steps since the last checkpoint of slow-0 (not done")

    def gone():
        def fail(job, event):
            if isinstance(event, Update):
                raise BrokenPipeError

        with pytest.raises(BrokenPipeError):
            run_all([job], workers=1, resume=True, watch=fail)
        assert load_checkpoint(job.folder).state["position"]["steps"] > 0

    tried.try_it("no time", too_late)
    monkeypatch.undo()
    tried.try_it("a watcher that fails", gone)


@pytest.mark.soak
def test_runs_in_a_terminal_that_is_closed_are_saved(tmp_path, attack):
    """A real terminal, with all that a closed one brings: SIGHUP to every process, and output that fails."""
    tried = attack("comparison", "its terminal is closed")
    ours, theirs = os.openpty()
    command = ["compare", "split-mnist-5k", "--methods", "sgd", "--seeds", "2", "--set", "epochs=3000"]
    process = subprocess.Popen(
        [sys.executable, "-c", "from sfao.lab.cli.main import main; main()", *command, "--out", str(tmp_path / "out")],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    folders = [tmp_path / "out" / f"sgd-{seed}" for seed in (0, 1)]

    def trial():
        began = time.monotonic()
        while not all(
            (folder / "steps.jsonl").exists() and os.path.getsize(folder / "config.yaml") for folder in folders
        ):
            assert process.poll() is None
            assert time.monotonic() - began < 500
            os.set_blocking(ours, False)
            try:
                os.read(ours, 2**16)  # a terminal that nobody reads holds its writers up
            except BlockingIOError:
                time.sleep(0.05)
        os.close(ours)
        process.wait(500)
        steps = [load_checkpoint(folder).state["position"]["steps"] for folder in folders]
        assert min(steps) > 0, steps

    try:
        tried.try_it("sgd, two seeds", trial)
    finally:
        process.kill()
        process.wait()
