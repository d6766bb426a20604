"""Every number that a page tells as a result has the record it came from, and the command that makes it again."""

import json
import re
import runpy
from statistics import fmean

import pytest

from sfao.lab.paper.archive import read_lines, write_lines
from sfao.lab.paper.protocol import protocol
from tests.docs.number_blocks import ROOT, Block, agrees, numbers_in, read_blocks
from tests.docs.recorded_numbers import find_fault
from tests.lab.paper.made import record

#: Pages that are generated whole, and compared with their records elsewhere.
GENERATED = (
    "docs/baselines.md",
    "docs/reliability.md",
    "docs/reproduction.md",
    "docs/reproduction/",
    "docs/tutorial.md",
)
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
    "docs/laboratory.md": {"| `guard.kind`": SETTINGS},
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
    bare = [block.where for block in MARKED if not (block.has_command or block.marker[1].endswith(".md"))]
    assert bare == []


def test_results_without_a_record_are_allowed():
    bare = [block for block in BLOCKS if block.tells_results and not block.marker]
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

SERIES = {row: series for (row, _), series in protocol(1, "released").cells.items()}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a page below a marker, and return what is wrong with it."""
    monkeypatch.setattr("tests.docs.number_blocks.ROOT", tmp_path)
    runs = [record(SERIES[row], seed, 0.7 + seed / 50) for row in ("SGD", "OGD") for seed in range(3)]
    write_lines(tmp_path / "runs.jsonl", runs)
    rows = [{"group": group, "name": "SGD", "ms": ms, "bytes": 1200000} for group, ms in (("a, 2", 0.98), ("b", 1.5))]
    (tmp_path / "made.json").write_text(json.dumps({"speed": {"ratio": 1.2345}, "bytes": 1200000, "rows": rows}))
    (tmp_path / "page.md").write_text("All tables: 85.4 and 1,441.82 MB.\n")
    (tmp_path / "program.py").write_text("print(f'{3 * 1.5:.2f} s, 5386.3 MB')\n")

    def check(marker: str, text: str) -> str:
        page = tmp_path / "written.md"
        page.write_text(f"# Title\n\n<!-- {marker} -->\n\n{text}\n")
        (block,) = read_blocks(page)
        return find_fault(block, tmp_path)

    return check


@pytest.mark.parametrize(
    ("marker", "right", "wrong"),
    [
        ("from runs.jsonl: compare", "| sgd | 0.720 ± 0.020 |\n| **ogd** | .72 |", "0.72 0.73"),
        ("from runs.jsonl: 100 * average_accuracy ± by method", "| `sgd` | 80.6 then 72.0 ± 2.0 |", "72.0 72.1"),
        ("from runs.jsonl: average_accuracy by method", "sgd  0.720  best\nogd  0.720", "0.720 0.721"),
        ("from made.json: speed.ratio, bytes", "It is 1.23 times as fast with 1,200,000 bytes.", "1.23 1.24"),
        ("from made.json: speed.ratio,\n  1e-6 * bytes", "It is 1.23 times as fast with 1.2 MB.", "1.2 1.3"),
        ("from made.json: rows[SGD; a, 2].ms, rows[b].ms", "It takes 0.98 ms, and 1.5 ms.", "0.98 0.99"),
        ("from made.json: rows[b].ms", "It takes 1.5 ms with `clip` at `0.6`.", "`0.6` 0.6"),
        ("from made.json: ms, 1e-6 * bytes by group, name", "| a, 2 | SGD | 0.98 | 1.20 |", "1.20 1.21"),
        ("from runs.jsonl: average_accuracy, rollbacks by method, guard.kind", "| sgd | none | .72 | 0.0", "0.0 1.0"),
        ("from runs.jsonl: average_accuracy by method, lr", "| ogd | 0.001 | .720 |", "0.001 0.002"),
        ("from page.md", "SFAO has 85.4, in 1441.82 MB.", "85.4 85.5"),
        ("printed by: program.py", "It takes 4.5 s and 5.39 GB.", "4.5 4.6"),
    ],
)
def test_a_digit_that_was_changed_is_found(write, marker, right, wrong):
    assert write(marker, right) == ""
    before, after = wrong.split()
    fault = write(marker, right.replace(before, after, 1))
    assert fault.startswith("written.md:")


def test_rows_and_files_that_are_not_there_are_named(write):
    assert "the records have no row 'gpm', only" in write("from runs.jsonl: compare", "| gpm | 0.72 |")
    assert "there is no gone.jsonl" in write("from gone.jsonl: compare", "| sgd | 0.72 |")
    assert "a rule must be `compare` or" in write("from runs.jsonl: best", "| sgd | 0.72 |")
    assert "no row with a decimal number" in write("from runs.jsonl: compare", "nothing")
    assert "has no `rows[SGD].ms`: 2 rows have SGD" in write("from made.json: rows[SGD].ms", "It takes 0.98 ms.")
    assert "has no `speed.gone`: 'gone'" in write("from made.json: speed.gone", "It is 1.23 times as fast.")


def test_blocks_that_tell_results_are_told_from_settings(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A\n\nSGD has .65 and SFAO .85.\n\nVersion 2.13.0, `lr=0.05, clip=0.6`, in 2026.\n\n| a |\n|---|\n| 0.5 |\n\n"
        "```python\nx = 0.5, 0.6\n```\n\n# B\n\n    sfao run split --set lr=0.1 --set clip=0.6\n\nends at .7 and .8.\n"
    )
    blocks = [(block.text.splitlines()[0], block.tells_results, block.has_command) for block in read_blocks(page)]
    assert blocks == [
        ("SGD has .65 and SFAO .85.", True, False),
        ("Version 2.13.0, `lr=0.05, clip=0.6`, in 2026.", False, False),
        ("| a |", True, False),
        ("    sfao run split --set lr=0.1 --set clip=0.6", False, True),
        ("ends at .7 and .8.", True, True),
    ]


def test_numbers_agree_to_the_digits_that_are_written():
    assert numbers_in("1,441.82 MB, .860 ± 0.02, 784-256-10, 2.13.0, 20x, 3x3") == ["1,441.82", ".860", "0.02", "20"]
    assert agrees(".86", 0.8649)
    assert agrees("0.865", 0.86451)
    assert not agrees("0.86", 0.8651)


def test_records_of_a_folder_of_runs_are_kept(tmp_path, monkeypatch, capsys):
    folder = SERIES["SGD"].folder(tmp_path / "runs", 0)
    folder.mkdir(parents=True)
    record(SERIES["SGD"]).save(folder)
    program, file = str(ROOT / "docs" / "keep_records.py"), tmp_path / "kept" / "runs.jsonl"
    monkeypatch.setattr("sys.argv", [program, str(tmp_path / "runs"), str(file)])
    runpy.run_path(program, run_name="__main__")
    assert capsys.readouterr().out == f"{file}: 1 runs\n"
    assert [one.method for one in read_lines(file)] == ["sgd"]
    monkeypatch.setattr("sys.argv", [program, str(tmp_path / "kept"), str(file)])
    with pytest.raises(SystemExit, match="keep_records: `RUNS` must be a folder that holds finished runs"):
        runpy.run_path(program, run_name="__main__")
