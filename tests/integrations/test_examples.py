"""The examples run and print what the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "integrations.md").read_text()
#: {example: what it prints at its end}
EXAMPLES = dict(re.findall(r"`python (examples/\w+\.py)`[^`]*?```text\n(.*?)```", PAGE, re.DOTALL))
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def test_every_library_has_an_example():
    stems = {Path(example).stem for example in EXAMPLES}
    assert stems == {"accelerate_loop", "avalanche_stream", "lightning_tasks", "lora_tasks", "trainer_tasks"}


@pytest.mark.parametrize("example", EXAMPLES)
def test_it_prints_what_the_page_says(example):
    printed = EXAMPLES[example]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", ROOT / example]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found = "".join(done.stdout.splitlines(keepends=True)[-len(printed.splitlines()) :])
    assert NUMBER.sub("#", found) == NUMBER.sub("#", printed)
    # Rounding on other processors moves an accuracy a little.
    assert list(map(float, NUMBER.findall(found))) == pytest.approx(list(map(float, NUMBER.findall(printed))), abs=0.05)
