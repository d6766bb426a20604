import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfao.lab.report.tables import escape_latex, render_latex
from tests.lab.tables.runners import Runner, race


def test_a_table_has_its_columns_rows_caption_and_label():
    assert render_latex(race(), "tab:race").splitlines() == [
        r"\begin{table}",
        r"  \centering",
        r"  \caption{A race Dry track.}",
        r"  \label{tab:race}",
        r"  \smallskip",
        r"  \small\setlength{\tabcolsep}{4pt}",
        r"  \begin{tabular}{@{}lrl@{}}",
        r"    \toprule",
        r"    name & seconds & remark \\",
        r"    \midrule",
        r"    ann & \textbf{9.5} &  \\",
        r"    bob & 11.2 & fell \\",
        r"    eve &  &  \\",
        r"    \textit{car} & \textit{2.0} &  \\",
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]


def test_titles_notes_and_cells_are_escaped():
    text = render_latex(race([Runner("a_b", 1.0)], title="50 %", notes=["5 & 6"]), "tab:x")
    assert r"\caption{50 \% 5 \& 6}" in text
    assert r"    a\_b & 1.0" in text


@pytest.mark.parametrize(
    ("plain", "written"),
    [
        ("a_b & 5%", r"a\_b \& 5\%"),
        ("{x}$#", r"\{x\}\$\#"),
        ("\\input", r"\textbackslash{}input"),
        ("~^`", r"\textasciitilde{}\textasciicircum{}\textasciigrave{}"),
        ("<0.0001", "$<$0.0001"),
        ("two\n\nlines", "two lines"),
    ],
)
def test_special_letters(plain, written):
    assert escape_latex(plain) == written


@given(st.text(max_size=40))
def test_nothing_special_is_left_unescape_latex(text):
    left = escape_latex(text)
    words = (r"\textbackslash{}", r"\textasciitilde{}", r"\textasciicircum{}", r"\textasciigrave{}")
    for known in (*words, "$<$", "$>$", "$|$", r"$\pm$"):
        left = left.replace(known, "")
    left = re.sub(r"\\[&%$#_{}]", "", left)
    assert not set(left) & set("\\&%$#_{}~^`<>|\n")
