"""The results page: it says what the records say, and what there are none for."""

import subprocess
import sys
from pathlib import Path

import pytest

from sfao.experiment.errors import FolderError
from sfao.reproduction.archive import write_lines
from sfao.reproduction.page import page
from sfao.reproduction.protocol import protocol
from tests.reproduction.made import record

DOCS = Path(__file__).parents[2] / "docs"
TABLE1 = {row: series for (row, _), series in protocol(1, "released").cells.items()}


def make(*arguments):
    command = [sys.executable, DOCS / "make_reproduction.py", *arguments]
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120)


def test_the_page_is_that_of_the_records_beside_it():
    """`make reproduction` after every change of either."""
    assert (DOCS / "reproduction.md").read_text() == page(DOCS / "records")


def test_without_records_every_table_is_missing(tmp_path):
    text = page(tmp_path)
    assert text.count("not run yet") == 3 * 11
    assert "- Table 7, Split TinyImageNet, WRN-28-10: not run yet (`sfao reproduce table7 --preset paper`)" in text


def test_tables_with_records_are_shown_and_the_others_listed_with_their_reason(tmp_path):
    write_lines(tmp_path / "released" / "split-mnist.jsonl", [record(TABLE1["SGD"], seed) for seed in range(3)])
    (tmp_path / "missing.yaml").write_text("released:\n  table7: Tiny ImageNet was not at hand\n")
    text = page(tmp_path)
    assert "### Table 1, Split MNIST: accuracy in % after the last task; preset released" in text
    assert "ours, n = 3 of 5" in text  # the paper's five
    assert "60,000 training and 10,000 test images of mnist; on cpu (x86_64)" in text
    assert "Table 7, Split TinyImageNet, WRN-28-10: Tiny ImageNet was not at hand" in text
    assert text.count("not run yet") == 11 + 9 + 11
    assert "every row as the paper's was produced" not in text


def test_rows_run_as_the_paper_s_were_are_a_table_of_their_own(tmp_path):
    si = protocol(1, "released", True).cells["SI", ""]
    write_lines(tmp_path / "released" / "split-mnist.jsonl", [record(TABLE1["SGD"]), record(si)])
    assert page(tmp_path).count("every row as the paper's was produced") == 1


def test_records_of_settings_that_have_changed_are_named(tmp_path):
    stale = record(TABLE1["SGD"])
    stale.config["epochs"] = 7
    write_lines(tmp_path / "released" / "split-mnist.jsonl", [stale])
    assert "1 records are of settings that the preset no longer has, and stand in no table: sgd on split-mnist." in (
        page(tmp_path)
    )


def test_a_damaged_record_is_named(tmp_path):
    file = tmp_path / "released" / "split-mnist.jsonl"
    write_lines(file, [record(TABLE1["SGD"])])
    file.write_text(file.read_text() + "{\n")
    with pytest.raises(FolderError, match=r"split-mnist\.jsonl:2 must be the record of a run"):
        page(tmp_path)


def test_the_script_collects_and_writes(tmp_path):
    series = TABLE1["SGD"]
    folder = series.folder(tmp_path / "runs", 0)
    folder.mkdir(parents=True)
    record(series).save(folder)
    places = ["--records", tmp_path / "records", "--page", tmp_path / "page.md"]
    done = make("--collect", tmp_path / "runs", *places)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "page.md").read_text() == page(tmp_path / "records")
    assert "ours, n = 1 of 5" in (tmp_path / "page.md").read_text()


def test_the_script_says_in_a_line_what_is_wrong(tmp_path):
    empty = make("--collect", tmp_path, "--records", tmp_path / "records", "--page", tmp_path / "page.md")
    assert empty.returncode == 1
    assert empty.stderr.startswith("make_reproduction: `collect` must be a folder that holds finished runs")
    assert not (tmp_path / "page.md").exists()
