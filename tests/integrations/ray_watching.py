"""Looking at runs on a Ray cluster from outside, and nodes that do not see what others see."""

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from sfao.lab.run.checkpoint import load_checkpoint
from sfao.lab.run.jobs import Lost
from sfao.lab.run.progress import Update

RAY = Path(sys.executable).with_name("ray")


def read_steps(folder):
    return [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]


def find_holder(folder):
    """The process that holds the lock of a run folder, and its parent, the raylet; None if there is none."""
    for entry in Path("/proc").iterdir():
        try:
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            if any(os.readlink(link) == str(folder / ".lock") for link in (entry / "fd").iterdir()):
                return int(entry.name), int((entry / "stat").read_text().rsplit(")")[-1].split()[1])
        except OSError:
            continue
    return None


class Events:
    """Keeps what happens to each run, and does something once, when a condition holds."""

    def __init__(self, act=lambda job: False):
        self.all, self._act, self.acted, self.saved = [], act, None, 0

    def __call__(self, job, event):
        self.all.append((job.folder.name, event))
        if self.acted is None and isinstance(event, Update):
            saved = load_checkpoint(job.folder)
            if saved is not None and self._act(job):
                self.acted, self.saved = job.folder.name, saved.state["position"]["steps"]

    def of(self, name, kind):
        return [event for run, event in self.all if run == name and isinstance(event, kind)]

    def check_went_on(self):
        """The run that was disturbed was begun again once, from its checkpoint: no step before it was made again."""
        lost = [number for number, (_, event) in enumerate(self.all) if isinstance(event, Lost)]
        assert [self.all[number][0] for number in lost] == [self.acted]
        later = [event.step for name, event in self.all[lost[0] :] if name == self.acted and isinstance(event, Update)]
        assert 0 < self.saved <= min(later)


@contextmanager
def hidden_node(address, *hidden, cpus):
    """A node that does not see these folders, as on another machine: they are covered in a mount namespace."""
    covers = " && ".join(f"mount -t tmpfs none {folder}" for folder in hidden)
    if subprocess.run(["unshare", "-m", "sh", "-c", covers], check=False, capture_output=True).returncode:
        pytest.skip("this system lets nobody cover a folder for one process")
    start = f"{RAY} start --address={address} --num-cpus={cpus} --object-store-memory=150000000 --block"
    node = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", f"{covers} && exec {start}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PATH": f"{RAY.parent}:{os.environ['PATH']}"},  # Ray looks for its commands there
    )
    try:
        wait_for(lambda: max(count_cpus(address)) == cpus)
        yield
    finally:
        node.terminate()
        node.wait(300)
        wait_for(lambda: max(count_cpus(address)) < cpus)


def count_cpus(address):
    from ray._private.state import GlobalState
    from ray._raylet import GcsClientOptions

    state = GlobalState()
    state._initialize_global_state(
        GcsClientOptions.create(address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False)
    )
    return [node["Resources"].get("CPU", 0) for node in state.node_table() if node["Alive"]]


def wait_for(what, seconds=300):
    until = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.2)
    return found
