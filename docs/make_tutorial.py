"""docs/tutorial.md with what its code really prints.

python docs/make_tutorial.py             run the page in an empty folder and write what is printed into it
python docs/make_tutorial.py --check     change nothing; say where page and print differ

The ```python blocks are one program; a ```text block right after one is what it prints. In ```console blocks, what
follows a line "$ command" is what that command prints on its output (its error stream, with the progress, is not
shown). Other blocks are not run. Times, which no two runs share, stand as … on the page.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, redirect_stdout
from difflib import unified_diff
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from traceback import format_exc
from typing import Any

PAGE = Path(__file__).parent / "tutorial.md"

#: A block that is run, and what the page says it prints.
BLOCK = re.compile(
    r"```python\n(?P<python>.*?)```\n(\n```text\n.*?```\n)?|```console\n(?P<console>.*?)```\n", re.DOTALL
)
#: Seconds, and how many times as many as another's.
TIME = re.compile(r"\d+\.\d+(?= s\b|x\b)")


class BrokenPage(Exception):  # noqa: N818, it names what was found
    """A block of the page that does not run."""


def run_page(page: Path) -> str:
    """Return the page with what its blocks print now; blocks in which only times have changed stay as they are."""
    text, session = page.read_text(), {"__name__": "__main__"}

    def run(block: re.Match[str]) -> str:
        line = text[: block.start()].count("\n") + 2
        if block["python"] is not None:
            printed = run_python(block["python"], session, page, line)
            made = f"```python\n{block['python']}```\n" + (f"\n```text\n{printed}```\n" if printed else "")
        else:
            lines = (f"$ {command}\n{run_command(command, line)}" for command in find_commands(block["console"]))
            made = f"```console\n{''.join(lines)}```\n"
        return block[0] if drop_widths(block[0]) == drop_widths(made) else made

    with TemporaryDirectory() as folder, chdir(folder):
        return BLOCK.sub(run, text)


def run_python(code: str, session: dict[str, Any], page: Path, line: int) -> str:
    # As many empty lines before it as there are on the page, so that a traceback names its lines.
    program = compile("\n" * (line - 1) + code, str(page), "exec")
    with redirect_stdout(StringIO()) as printed:
        try:
            exec(program, session)
        except Exception:
            raise BrokenPage(f"the python block of line {line} must run\n{format_exc()}") from None
    return mask_times(printed.getvalue())


def find_commands(block: str) -> Iterator[str]:
    return (shown.removeprefix("$ ") for shown in block.splitlines() if shown.startswith("$ "))


def run_command(command: str, line: int) -> str:
    # The commands of the installation that runs this, and plain text even where colours are asked for.
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    plain = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "TTY_COMPATIBLE")}
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env={**plain, "PATH": search})
    if done.returncode:
        raise BrokenPage(f"`{command}` of line {line} must exit with 0, got {done.returncode}\n{done.stderr}")
    return mask_times(done.stdout)


def mask_times(printed: str) -> str:
    """Replace times, every column where it was, and drop spaces at the ends of lines."""
    hidden = TIME.sub(lambda time: "…".rjust(len(time[0])), printed)
    return "".join(f"{line.rstrip()}\n" for line in hidden.splitlines())


def drop_widths(text: str) -> str:
    """Fold spaces and rules in text with times: a table is wider where a run took longer."""
    if "…" not in text:
        return text
    return re.sub(r"─+", "─", re.sub(r" +", " ", text))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, exit with 1 where the page is wrong")
    parser.add_argument("--page", type=Path, default=PAGE)
    arguments = parser.parse_args()
    # Before anything imports torch: the numbers of the page are those of one thread.
    os.environ["OMP_NUM_THREADS"] = "1"
    page = arguments.page.resolve()
    before = page.read_text()
    try:
        after = run_page(page)
    except BrokenPage as broken:
        sys.exit(f"make_tutorial: {broken}")
    if not arguments.check:
        page.write_text(after)
    elif after != before:
        differing = unified_diff(before.splitlines(), after.splitlines(), "on the page", "printed", lineterm="")
        sys.exit("\n".join(["make_tutorial: the page must say what is printed; `make tutorial` mends it", *differing]))
    print(arguments.page)


if __name__ == "__main__":
    main()
