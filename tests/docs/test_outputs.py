"""The tutorial shows what its code prints."""

import re
import shlex
from pathlib import Path
from subprocess import CompletedProcess

from tests.command import load_program, run, run_program
from tests.lab.data.publishers import digits, write_mnist

DOCS = Path(__file__).parents[2] / "docs"
PROGRAM = DOCS / "make_outputs.py"
TUTORIAL = (DOCS / "tutorial.md").read_text()


def make(folder, text, *arguments):
    """Return what became of a page with this text, and how the program ended."""
    page = folder / "page.md"
    page.write_text(text)
    done = run_program(PROGRAM, page, *arguments)
    return page.read_text(), done


def test_every_output_on_the_page_is_what_its_code_prints(monkeypatch):
    """Run `make outputs` after a change of the page or of what it shows; here its commands are forked."""
    maker = load_program(PROGRAM)
    shell = maker.subprocess.run

    def run_forked(command: str, **how: object) -> CompletedProcess[str]:
        program, *arguments = shlex.split(command)
        return run(*arguments) if program == "sfao" else shell(command, **how)

    monkeypatch.setattr(maker.subprocess, "run", run_forked)
    assert maker.run_page(DOCS / "tutorial.md") == TUTORIAL


def test_every_fraction_that_the_prose_tells_was_printed():
    prose = re.sub(r"```.*?```", "", TUTORIAL, flags=re.DOTALL)
    printed = "".join(re.findall(r"```.*?```", TUTORIAL, re.DOTALL))
    assert [number for number in re.findall(r"\d+\.\d+", prose) if number not in printed] == []


def test_the_reproduction_that_is_only_shown_is_a_command(tmp_path):
    """Planned, not run, on a little of MNIST in the publisher's layout."""
    (arguments,) = re.findall(r"^    sfao (reproduce .*)$", TUTORIAL, re.MULTILINE)
    write_mnist(tmp_path / "MNIST" / "raw", digits(train=200, test=50))
    done = run(*arguments.split(), "--dry-run", "--data-root", tmp_path, "--out", tmp_path / "runs")
    assert (done.returncode, done.stderr) == (0, "")
    assert "5 runs: 5 to do" in done.stdout


def test_outputs_are_renewed_added_and_taken_away(tmp_path):
    page = (
        "```python\nx = 6\nprint(x * 7)\n```\n\n```text\n41\n```\n\nProse.\n\n"
        "```python\nprint(x)\n```\n\n"
        "```python\ny = x\n```\n\n```text\nwrong\n```\n\n"
        "```console\n$ echo here; echo aside >&2\nthere\n$ cat absent || true\n```\n\n```sh\nexit 3\n```\n"
    )
    text, done = make(tmp_path, page)
    assert (done.returncode, done.stderr) == (0, "")
    assert text == (
        "```python\nx = 6\nprint(x * 7)\n```\n\n```text\n42\n```\n\nProse.\n\n"
        "```python\nprint(x)\n```\n\n```text\n6\n```\n\n"
        "```python\ny = x\n```\n\n"
        "```console\n$ echo here; echo aside >&2\nhere\n$ cat absent || true\n```\n\n```sh\nexit 3\n```\n"
    )
    assert make(tmp_path, text, "--check")[1].returncode == 0


def test_a_check_changes_nothing_and_says_what_differs(tmp_path):
    page = "```python\nprint(42)\n```\n\n```text\n41\n```\n"
    text, done = make(tmp_path, page, "--check")
    assert (text, done.returncode) == (page, 1)
    assert "page.md must have what is printed" in done.stderr
    assert "-41\n+42\n" in done.stderr


def test_a_block_that_fails_is_named_and_the_page_stays(tmp_path):
    page = "Prose.\n\n```python\nx = 1\nx / 0\n```\n"
    text, done = make(tmp_path, page)
    assert (text, done.returncode) == (page, 1)
    assert "make_outputs: the python block of line 4 must run" in done.stderr
    assert 'page.md", line 5, in <module>' in done.stderr
    page = "```console\n$ echo trouble >&2; exit 3\n```\n"
    text, done = make(tmp_path, page)
    assert (text, done.returncode) == (page, 1)
    assert "`echo trouble >&2; exit 3` of line 2 must exit with 0, got 3\ntrouble" in done.stderr
