"""The pages as they are written: their links, and their code."""

import re
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
#: What a page says whose code is run here.
RUN = "<!-- The Python blocks of this page are one program, which the tests run. -->"
RUNNABLE = [page for page in PAGES if page.read_text().startswith(RUN)]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def python_blocks(text: str) -> str:
    """The Python blocks of a page as one program, every line where it stands on the page."""
    lines, inside = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = line.strip() == "```python"
            lines.append("")
        else:
            lines.append(line if inside else "")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_code_compiles(page):
    compile(python_blocks(page.read_text()), str(page), "exec")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_are_linked_are_there(page):
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s:#]+)(?:#[^)\s]*)?\)", prose):
        assert (page.parent / target).exists(), target


def test_the_pages_that_say_so_are_run():
    assert [page.name for page in RUNNABLE] == ["index.md", "integrations.md", "loops.md", "options.md"]


@pytest.mark.parametrize("page", RUNNABLE, ids=name)
def test_the_code_of_the_page_runs_and_prints_what_its_comments_say(page, tmp_path):
    code = python_blocks(page.read_text())
    with chdir(tmp_path), redirect_stdout(StringIO()) as printed:
        exec(compile(code, str(page), "exec"), {"__name__": "__main__"})
    for promised in re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE):
        assert promised in printed.getvalue().splitlines()
