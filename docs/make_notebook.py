"""examples/forgetting.ipynb with what its cells really print and show.

python docs/make_notebook.py             run the cells in order, and write what they print and show into the file
python docs/make_notebook.py --check     change nothing; say which cells print something else now

No Jupyter is needed: cells are run as Python, and the last expression of a cell is shown in the forms that a notebook
asks an object for. Times, which no two runs share, are not compared.
"""

import argparse
import ast
import json
import os
import re
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "examples" / "forgetting.ipynb"
#: How an object is asked to show itself, by the type of what it then returns.
FORMS = {"image/svg+xml": "_repr_svg_", "text/markdown": "_repr_markdown_", "text/plain": "__repr__"}
#: Seconds, and how many times as many as another's.
TIME = re.compile(r"\d+\.\d+(?= s\b|x\b)")
#: The tag of the cell whose names may be given other values.
PARAMETERS = "parameters"


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
        outputs.append({"name": "stdout", "output_type": "stream", "text": split_lines(printed.getvalue())})
    if shown is not None:
        data = {kind: split_lines(getattr(shown, form)()) for kind, form in FORMS.items() if hasattr(shown, form)}
        if "image/svg+xml" in data:
            data["text/plain"] = ["<a figure>"]  # in place of an address in memory
        outputs.append({"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"})
    return outputs


def split_lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def read_outputs(notebook: dict[str, Any]) -> list[str]:
    """Return what each code cell printed and showed as text, without times; a figure counts by being there."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, exit with 1 where an output is another")
    parser.add_argument("--notebook", type=Path, default=NOTEBOOK)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # before anything imports torch
    before = json.loads(arguments.notebook.read_text(encoding="utf-8"))
    after = run_notebook(before)
    if not arguments.check:
        text = json.dumps(after, indent=1, ensure_ascii=False) + "\n"
        arguments.notebook.write_text(text, encoding="utf-8")
    else:
        pairs = zip(read_outputs(before), read_outputs(after), strict=True)
        differing = [str(number) for number, (old, new) in enumerate(pairs, start=1) if old != new]
        if differing:
            sys.exit(f"make_notebook: cells must hold what they print, but {', '.join(differing)} print something else")
    print(arguments.notebook)


if __name__ == "__main__":
    main()
