"""The notebook: its cells run in order, with the laboratory alone, and hold what a run of them left."""

import ast
import json
import sys
from pathlib import Path

import pytest
import torch

from tests.command import load_program

ROOT = Path(__file__).parents[2]
NOTEBOOK = json.loads((ROOT / "examples" / "forgetting.ipynb").read_text(encoding="utf-8"))
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


@pytest.fixture(scope="module")
def maker():
    return load_program(ROOT / "docs" / "make_outputs.py")


def test_its_cells_run_and_leave_outputs_of_the_kinds_that_are_kept(maker):
    """On a few images; `python docs/make_outputs.py --check` compares the numbers."""
    threads = torch.get_num_threads()
    try:
        again = maker.run_notebook(NOTEBOOK, {"share": 0.02, "epochs": 1, "seeds": 1})
    finally:
        torch.set_num_threads(threads)
    for kept, made in zip(NOTEBOOK["cells"], again["cells"], strict=True):
        assert kept["source"] == made["source"]
        assert [output.get("data", {}).keys() for output in kept.get("outputs", [])] == [
            output.get("data", {}).keys() for output in made.get("outputs", [])
        ]


def test_it_was_run_in_order_and_shows_a_figure_and_a_table():
    assert [cell["execution_count"] for cell in CODE] == list(range(1, len(CODE) + 1))
    shown = [output["data"] for cell in CODE for output in cell["outputs"] if output["output_type"] == "execute_result"]
    (figure,) = ("".join(data["image/svg+xml"]) for data in shown if "image/svg+xml" in data)
    assert "<svg" in figure
    (table,) = ("".join(data["text/markdown"]) for data in shown if "text/markdown" in data)
    assert all(f"| {method} " in table for method in ("sgd", "ewc", "sfao", "drift-bound"))


def test_it_imports_nothing_but_what_the_laboratory_brings():
    imported = {
        name.split(".")[0]
        for cell in CODE
        for node in ast.walk(ast.parse("".join(cell["source"])))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    assert imported - set(sys.stdlib_module_names) == {"torch", "matplotlib", "sfao"}


def test_a_cell_that_prints_something_else_is_named(maker, tmp_path, monkeypatch):
    cell = {"cell_type": "code", "metadata": {}, "execution_count": 1, "source": ["print(42)"], "outputs": []}
    file = tmp_path / "one.ipynb"
    file.write_text(json.dumps({"cells": [cell]}))
    monkeypatch.setattr(sys, "argv", ["make_outputs", "--check", str(file)])
    with pytest.raises(SystemExit, match=r"one\.ipynb must have what is printed"):
        maker.main()
    monkeypatch.setattr(sys, "argv", ["make_outputs", str(file)])
    maker.main()
    assert json.loads(file.read_text())["cells"][0]["outputs"][0]["text"] == ["42\n"]
