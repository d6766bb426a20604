"""Every measured number on a page has a record and a command that repeats it."""

import re
from statistics import fmean

import pytest

from sfao.lab.paper.archive import read_lines
from tests.docs.recorded_numbers import ROOT, Block, find_fault, read_blocks

#: Pages that docs/make_pages.py and docs/make_outputs.py write; test_generated.py and test_outputs.py compare them.
GENERATED = ("docs/reliability.md", "docs/reproduction.md", "docs/tutorial.md")
PAGES = [
    page
    for page in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    if not str(page.relative_to(ROOT)).startswith(GENERATED) and page.name != "CHANGELOG.md"
]
BLOCKS = [block for page in PAGES for block in read_blocks(page)]
MARKED = [block for block in BLOCKS if block.marker]

SETTINGS = "settings and equations, no results"
NOT_KEPT = "measured on a machine that is not at hand; its output was not kept, and the page says so"
OTHERS = "printed by others, in papers; the page says so"
#: {page: {how a block begins: why it has no record}}
ALLOWED = {
    "README.md": {
        "The demo prints": "numbers of the table below, compared in test_the_table_of_the_readme",
        "| | SGD | EWC": "compared in test_the_table_of_the_readme",
    },
    "docs/method.md": {
        "| option | default": SETTINGS,
        "| | |": OTHERS,
    },
    "docs/options.md": {
        "| if | then |": SETTINGS,
        "The paper's thresholds": SETTINGS,
    },
    "docs/ray.md": {
        "| option": SETTINGS,
        "| launcher": NOT_KEPT,
        "All 40 weights": NOT_KEPT,
    },
}


#: Methods whose name isn't the lower case of their column.
METHODS = {"DriftBound": "drift-bound"}


def name(block: Block) -> str:
    return block.where


@pytest.mark.parametrize("block", MARKED, ids=name)
def test_marked_numbers_are_those_of_their_records(block):
    assert find_fault(block) == ""


def test_results_of_records_stand_beside_their_command():
    # Numbers of another page have their command there.
    bare = [block.where for block in MARKED if not (block.has_command or block.marker[0].endswith(".md"))]
    assert bare == []


def test_results_without_a_record_are_allowed():
    bare = [block for block in BLOCKS if block.has_results and not block.marker]
    found = {(str(block.page.relative_to(ROOT)), block.text.strip()) for block in bare}
    unexplained = [
        f"{page}: {text.splitlines()[0][:80]}"
        for page, text in sorted(found)
        if not any(text.startswith(start) for start in ALLOWED.get(page, {}))
    ]
    assert unexplained == []
    unused = [
        f"{page}: {start}"
        for page, starts in ALLOWED.items()
        for start in starts
        if not any(page == where and text.startswith(start) for where, text in found)
    ]
    assert unused == []


def test_the_table_of_the_readme():
    """Every row has the means of its file of records, in the columns of the methods."""
    text = (ROOT / "README.md").read_text()
    files = re.search(r"<!-- table of average_accuracy: (.*?) -->", text)[1].split(", ")
    header, _, *lines = re.search(r"^\| \| SGD .*?\n\n", text, re.DOTALL | re.MULTILINE)[0].strip().splitlines()
    methods = [METHODS.get(cell.strip(), cell.strip().lower()) for cell in header.split("|")[2:-1]]
    for file, line in zip(files, lines, strict=True):
        records = read_lines(ROOT / file)
        values = {
            method: [one.metrics["average_accuracy"] for one in records if one.method == method] for method in methods
        }
        label, *cells = [cell.strip(" *") for cell in line.split("|")[1:-1]]
        assert cells == [f"{fmean(values[method]):.3f}".lstrip("0") for method in methods], label
        assert {len(found) for found in values.values()} == {int(re.search(r"(\d+) seeds", label)[1])}, label
    momentum = [f"{value:.3f}".lstrip("0") for value in (fmean(values[m]) for m in ("sgd", "sfao", "drift-bound"))]
    assert f"prints {momentum[0]}, {momentum[1]} and {momentum[2]}" in text
