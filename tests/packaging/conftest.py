import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def build(source: Path, out: Path, *what: str) -> list[Path]:
    """Build distributions with the backend that is installed, hence pinned."""
    command = [sys.executable, "-m", "build", "--no-isolation", *what, "--outdir", str(out), str(source)]
    # Without the sources under test on the path: a build sees the folder it is given.
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=alone, cwd=out.parent, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(out.iterdir())


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (made,) = build(ROOT, tmp_path_factory.mktemp("wheel") / "dist", "--wheel")
    return made
