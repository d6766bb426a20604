"""Run the code of the tutorial and of the notebook, and write what it prints into them.

python docs/make_outputs.py            run docs/tutorial.md and examples/forgetting.ipynb, and write their outputs
python docs/make_outputs.py --check    change nothing; exit with 1 where they print something else

On the page, the ```python blocks are one program; a ```text block right after one is what it prints. In ```console
blocks, the lines after "$ command" are what that command prints. Other blocks are not run. Notebook cells run as
Python, without Jupyter; the last expression of a cell is displayed as a notebook would. Times differ from run to run:
the page shows … in their place, and the comparison leaves them out.
"""

import argparse
import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir, redirect_stdout
from difflib import unified_diff
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from traceback import format_exc
from typing import Any

ROOT = Path(__file__).parents[1]
FILES = (ROOT / "docs" / "tutorial.md", ROOT / "examples" / "forgetting.ipynb")
#: A block of a page that is run, and the output below it.
BLOCK = re.compile(
    r"```python\n(?P<python>.*?)```\n(\n```text\n.*?```\n)?|```console\n(?P<console>.*?)```\n", re.DOTALL
)
#: Seconds, and ratios of times.
TIME = re.compile(r"\d+\.\d+(?= s\b|x\b)")
#: {MIME type: the method that returns an object in this form}
FORMS = {"image/svg+xml": "_repr_svg_", "text/markdown": "_repr_markdown_", "text/plain": "__repr__"}
#: The tag of the notebook's cell whose values `run_notebook` can replace.
PARAMETERS = "parameters"


class FailedBlockError(Exception):
    """A block of the page does not run."""


# -- The page ----------------------------------------------------------------------------------------------------------


def run_page(page: Path) -> str:
    """Return the page with what its blocks print now; blocks in which only times differ stay as they are."""
    text, session = page.read_text(encoding="utf-8"), {"__name__": "__main__"}

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
    """Return what a block prints."""
    program = compile("\n" * (line - 1) + code, str(page), "exec")  # so that a traceback has the lines of the page
    with redirect_stdout(StringIO()) as printed:
        try:
            exec(program, session)
        except Exception:
            raise FailedBlockError(f"the python block of line {line} must run\n{format_exc()}") from None
    return mask_times(printed.getvalue())


def find_commands(block: str) -> Iterator[str]:
    return (shown.removeprefix("$ ") for shown in block.splitlines() if shown.startswith("$ "))


def run_command(command: str, line: int) -> str:
    """Return what a shell command prints, without colors and without its error stream."""
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    plain = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "TTY_COMPATIBLE")}
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env={**plain, "PATH": search})
    if done.returncode:
        raise FailedBlockError(f"`{command}` of line {line} must exit with 0, got {done.returncode}\n{done.stderr}")
    return mask_times(done.stdout)


def mask_times(printed: str) -> str:
    """Replace times, keeping the columns, and drop spaces at the ends of lines."""
    hidden = TIME.sub(lambda time: "…".rjust(len(time[0])), printed)
    return "".join(f"{line.rstrip()}\n" for line in hidden.splitlines())


def drop_widths(text: str) -> str:
    """Fold spaces and rules in text with times: a table is wider where a run took longer."""
    return re.sub(r"─+", "─", re.sub(r" +", " ", text)) if "…" in text else text


# -- The notebook ------------------------------------------------------------------------------------------------------


def run_notebook(notebook: dict[str, Any], parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the notebook with what its cells print and show now; `parameters` replace values of the tagged cell."""
    session: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            cell = {**cell, "execution_count": count, "outputs": run_cell("".join(cell["source"]), session, count)}
            if PARAMETERS in cell["metadata"].get("tags", ()):
                session.update(parameters or {})
        cells.append(cell)
    return {**notebook, "cells": cells}


def run_cell(source: str, session: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Run the code of a cell; return its outputs as a notebook stores them."""
    program = ast.parse(source)
    last = program.body.pop() if program.body and isinstance(program.body[-1], ast.Expr) else None
    name, shown = f"<cell {count}>", None
    with redirect_stdout(StringIO()) as printed:
        exec(compile(program, name, "exec"), session)
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), name, "eval"), session)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    if shown is not None:
        forms = {kind: getattr(shown, form)() for kind, form in FORMS.items() if hasattr(shown, form)}
        data = {kind: text.splitlines(keepends=True) for kind, text in forms.items()}
        if "image/svg+xml" in data:
            data["text/plain"] = ["<a figure>"]  # in place of an address in memory
        outputs.append({"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"})
    return outputs


def read_outputs(notebook: dict[str, Any]) -> list[str]:
    """Return what each code cell printed and showed as text, without times; of a figure, only that there is one."""
    found = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            parts = [part for output in cell["outputs"] for part in _list_parts(output)]
            found.append(re.sub(r"[ ─-]+", " ", TIME.sub("…", "\n".join(parts))))
    return found


def _list_parts(output: dict[str, Any]) -> list[str]:
    if output["output_type"] == "stream":
        return ["".join(output["text"])]
    return [kind if kind == "image/svg+xml" else "".join(text) for kind, text in output["data"].items()]


# -- The program -------------------------------------------------------------------------------------------------------


def renew(file: Path, *, check: bool) -> list[str]:
    """Write the outputs of a file, or return the lines that differ."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        made = run_page(file)
        before, after = text.splitlines(), made.splitlines()
    else:
        notebook = run_notebook(json.loads(text))
        made = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
        before, after = ("\n".join(read_outputs(one)).splitlines() for one in (json.loads(text), notebook))
    if not check:
        file.write_text(made, encoding="utf-8")
        return []
    return list(unified_diff(before, after, str(file), "printed now", lineterm=""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 where outputs differ")
    parser.add_argument("files", type=Path, nargs="*", default=FILES, help="other pages and notebooks")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # before anything imports torch: the outputs are those of one thread
    for file in arguments.files:
        try:
            differing = renew(file.resolve(), check=arguments.check)
        except FailedBlockError as error:
            sys.exit(f"make_outputs: {error}")
        if differing:
            sys.exit("\n".join([f"make_outputs: {file} must have what is printed", *differing]))
        print(file)


if __name__ == "__main__":
    main()
