"""The command where the system has no POSIX signals, as Windows: the names are taken away in all its processes."""

import os
import subprocess
import sys
from pathlib import Path

import sfao
from tests.faults.small_runs import TINY

WITHOUT = """
import os, signal
for module, names in ((signal, ("SIGHUP", "SIGKILL", "SIGQUIT", "pthread_sigmask", "pthread_kill")),
                      (os, ("sched_getaffinity",))):
    for name in names:
        delattr(module, name)
"""


def test_runs_and_comparisons_work(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(WITHOUT)
    paths = [str(tmp_path), str(Path(sfao.__file__).parents[1])]
    settings = [f"--set={name}={value}" for name, value in TINY.items()]
    for command in (["run", "split-mnist-5k"], ["compare", "split-mnist-5k", "--methods", "sgd", "--seeds", "1"]):
        done = subprocess.run(
            [sys.executable, "-m", "sfao", *command, *settings, "--out", str(tmp_path / command[0])],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "compare" / "sgd-0" / "record.json").exists()
