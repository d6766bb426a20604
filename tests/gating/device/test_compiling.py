"""That every kernel compiles for the GPUs it is meant for, which the interpreter does not show."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("capability", ["80", pytest.param("90", marks=pytest.mark.soak)])
def test_every_kernel_compiles(capability):
    command = [sys.executable, "-m", "tests.gating.device.compiling", capability]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert {"dot_factored", "update_factored", "update_dense", "decide", "point"} <= set(done.stdout.split())
