"""The examples run, and the pages show them as they are, with what they print."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "integrations").glob("*.md"))
EXAMPLES = {
    page: ROOT / match[1] for page in PAGES if (match := re.search(r"`python (examples/\w+\.py)`", page.read_text()))
}
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def find_blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def test_every_library_has_a_page_with_an_example():
    assert {page.stem for page in EXAMPLES} == {"accelerate", "avalanche", "lightning", "peft", "transformers"}


@pytest.mark.parametrize("page", EXAMPLES, ids=lambda page: page.stem)
def test_the_page_shows_the_example_and_it_prints_what_the_page_says(page):
    example = EXAMPLES[page]
    assert example.read_text() in find_blocks(page, "python")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", example], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    (printed,) = find_blocks(page, "text")
    found = "".join(done.stdout.splitlines(keepends=True)[-len(printed.splitlines()) :])
    assert NUMBER.sub("#", found) == NUMBER.sub("#", printed)
    # Rounding on other processors moves an accuracy a little.
    assert list(map(float, NUMBER.findall(found))) == pytest.approx(list(map(float, NUMBER.findall(printed))), abs=0.05)
