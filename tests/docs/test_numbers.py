"""Every measured number on a page has a record and a command that repeats it."""

import json
import re
from statistics import fmean

import pytest

from sfao.lab.paper.archive import read_lines, write_lines
from sfao.lab.paper.series import table_series
from tests.docs.recorded_numbers import ROOT, Block, agrees, find_fault, numbers_in, read_blocks
from tests.lab.paper.made_records import record

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
        "**Where it loses.**": "compared in tests/integration/test_readme.py",
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


# -- The check itself ----------------------------------------------------------------------------------------

SERIES = {row: series for (row, _), series in table_series(1, "released").items()}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a page below a marker, and return what is wrong with it."""
    monkeypatch.setattr("tests.docs.recorded_numbers.ROOT", tmp_path)
    runs = [record(SERIES[row], seed, 0.7 + seed / 50) for row in ("SGD", "OGD") for seed in range(3)]
    write_lines(tmp_path / "runs.jsonl", runs)
    rows = [{"group": group, "name": "SGD", "ms": ms, "bytes": 1200000} for group, ms in (("a, 2", 0.98), ("b", 1.5))]
    (tmp_path / "made.json").write_text(json.dumps({"speed": {"ratio": 1.2345}, "bytes": 1200000, "rows": rows}))
    (tmp_path / "page.md").write_text("All tables: 85.4 and 1,441.82 MB.\n")

    def check(marker: str, text: str) -> str:
        page = tmp_path / "written.md"
        page.write_text(f"# Title\n\n<!-- {marker} -->\n\n{text}\n")
        (block,) = read_blocks(page)
        return find_fault(block, tmp_path)

    return check


@pytest.mark.parametrize(
    ("marker", "right", "wrong"),
    [
        ("from runs.jsonl: 100 * average_accuracy ± by method", "| `sgd` | 80.6 then 72.0 ± 2.0 |", "72.0 72.1"),
        ("from runs.jsonl: average_accuracy by method", "sgd  0.720  best\nogd  0.720", "0.720 0.721"),
        ("from made.json: speed.ratio,\n  1e-6 * bytes", "It is 1.23 times as fast with 1.2 MB.", "1.2 1.3"),
        ("from made.json: rows[SGD; a, 2].ms, rows[b].ms", "It takes 0.98 ms, and 1.5 ms.", "0.98 0.99"),
        ("from made.json: rows[b].ms", "It takes 1.5 ms with `clip` at `0.6`.", "`0.6` 0.6"),
        ("from made.json: ms, 1e-6 * bytes by group, name", "| a, 2 | SGD (fast) | 0.98 | 1.20 |", "1.20 1.21"),
        ("from runs.jsonl: average_accuracy, rollbacks by method, guard.kind", "| sgd | none | .72 | 0.0", "0.0 1.0"),
        ("from page.md", "SFAO has 85.4, in 1441.82 MB.", "85.4 85.5"),
    ],
)
def test_a_changed_digit_is_found(write, marker, right, wrong):
    assert write(marker, right) == ""
    before, after = wrong.split()
    assert write(marker, right.replace(before, after, 1)).startswith("written.md:")


def test_missing_rows_and_files_are_named(write):
    assert "the records have no row 'gpm', only" in write("from runs.jsonl: lr by method", "| gpm | 0.72 |")
    assert "there is no gone.jsonl" in write("from gone.jsonl: lr by method", "| sgd | 0.72 |")
    assert "no row with a decimal number" in write("from runs.jsonl: lr by method", "nothing")
    assert "has no `rows[SGD].ms`: 2 rows have SGD" in write("from made.json: rows[SGD].ms", "It takes 0.98 ms.")
    assert "has no `speed.gone`: 'gone'" in write("from made.json: speed.gone", "It is 1.23 times as fast.")


def test_results_differ_from_settings(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A\n\nSGD has .65 and SFAO .85.\n\nVersion 2.13.0, `lr=0.05, clip=0.6`, in 2026.\n\n| a |\n|---|\n| 0.5 |\n\n"
        "```python\nx = 0.5, 0.6\n```\n\n# B\n\n    sfao run split --set lr=0.1 --set clip=0.6\n\nends at .7 and .8.\n"
    )
    blocks = [(block.text.splitlines()[0], block.has_results, block.has_command) for block in read_blocks(page)]
    assert blocks == [
        ("SGD has .65 and SFAO .85.", True, False),
        ("Version 2.13.0, `lr=0.05, clip=0.6`, in 2026.", False, False),
        ("| a |", True, False),
        ("    sfao run split --set lr=0.1 --set clip=0.6", False, True),
        ("ends at .7 and .8.", True, True),
    ]


def test_numbers_agree_to_the_written_digits():
    assert numbers_in("1,441.82 MB, .860 ± 0.02, 784-256-10, 2.13.0, 20x, 3x3") == ["1,441.82", ".860", "0.02", "20"]
    assert agrees(".86", 0.8649)
    assert agrees("0.865", 0.86451)
    assert not agrees("0.86", 0.8651)
