import re
import shutil
import subprocess

import pytest

from sfao.lab.report.comparison import compare_records
from sfao.lab.report.comparison_table import as_latex
from tests.lab.report.test_comparison import THREE, record


def rows(text):
    """The cells of each line of the tables but headings."""
    body = re.findall(r"\\midrule\n(.*?)\n\s*\\bottomrule", text, re.DOTALL)
    return [line.strip().removesuffix(r" \\").split(" & ") for table in body for line in table.splitlines()]


def test_a_row_holds_what_the_table_for_people_does():
    table = {cells[0]: cells for cells in rows(as_latex(compare_records(THREE)))}
    assert list(table) == ["sgd", "ewc", "sfao", r"\textit{joint}"]
    assert table["ewc"] == [
        "ewc", "3", r"0.720 $\pm$ 0.020", "0.875", r"0.300 $\pm$ 0.000", "2.0 MB", "3.0 s 1.5x", "baseline",
    ]  # fmt: skip
    assert table["sfao"][2] == r"\textbf{0.800 $\pm$ 0.000}"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="LaTeX is not installed")
def test_it_compiles_and_fits_the_text_of_an_article(tmp_path):
    odd = {"method": "sgd", "seed": 0, "x": "_%&#$\\{}^~|`<>", "model": {"name": "mlp"}}
    usual = as_latex(compare_records(THREE))
    for text, fits in ((usual, True), (as_latex(compare_records([*THREE, record("sgd", 0, config=odd)])), False)):
        (tmp_path / "table.tex").write_text(text)
        (tmp_path / "paper.tex").write_text(
            r"\documentclass{article}\usepackage{booktabs}\begin{document}\input{table}\end{document}"
        )
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout
        assert "Overfull" not in done.stdout or not fits
