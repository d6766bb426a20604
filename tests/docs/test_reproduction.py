"""The results page: it says what the records say, and what there are none for."""

import re
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import pytest

from sfao.lab.paper.archive import write_lines
from sfao.lab.paper.page import FIGURES, FRONT, make_pages
from sfao.lab.paper.protocol import PRESETS, protocol
from sfao.lab.run.errors import FolderError
from tests.command import run_program
from tests.lab.paper.made import record

DOCS = Path(__file__).parents[2] / "docs"
TABLE1 = {row: series for (row, _), series in protocol(1, "released").cells.items()}


def make(*arguments):
    return run_program(DOCS / "make_reproduction.py", *arguments)


@pytest.fixture(scope="module")
def made():
    """What the records beside the page give now: `make reproduction` after every change of either."""
    return make_pages(DOCS / "records")


@pytest.fixture(scope="module")
def made_of_one(tmp_path_factory):
    """The pages of one run that ended at 0.70."""
    return make_pages_of_one(tmp_path_factory.mktemp("one"), 0.70)


def make_pages_of_one(folder, last):
    write_lines(folder / "released" / "x.jsonl", [record(TABLE1["SGD"], 0, last)])
    return make_pages(folder)


@pytest.fixture(scope="module")
def made_of_three(tmp_path_factory):
    """The pages of one row over three seeds, beside a run of settings that have changed; why there is no table 7."""
    folder = tmp_path_factory.mktemp("three")
    stale = record(TABLE1["SGD"])
    stale.config["epochs"] = 7
    records = [*(record(TABLE1["SGD"], seed) for seed in range(3)), stale]
    write_lines(folder / "released" / "split-mnist.jsonl", records)
    (folder / "missing.yaml").write_text("released:\n  table7: Tiny ImageNet was not at hand\n")
    return make_pages(folder)


def whole(made):
    """All pages as one text."""
    return "\n".join(made.texts.values())


def test_the_pages_are_those_of_the_records_beside_them(made):
    held = [DOCS / FRONT, *(DOCS / "reproduction").iterdir()]
    assert {str(file.relative_to(DOCS)): file.read_text() for file in held} == made.texts


def test_the_front_page_begins_with_five_sentences_and_leads_to_every_preset(made):
    front = made.texts[FRONT]
    title, _, *verdict = front.split("\n## ")[0].strip().splitlines()
    assert title == "# The paper, reproduced"
    assert [line.split(" ")[0] for line in verdict] == ["1.", "2.", "3.", "4.", "5."]
    assert all(line.endswith(".") for line in verdict)
    assert len(front.splitlines()) < 60
    for preset in PRESETS:
        assert f"](reproduction/{preset}.md)" in front
        assert "](../reproduction.md)" in made.texts[f"reproduction/{preset}.md"]


def test_the_figures_are_those_of_the_records_and_all_are_shown(made):
    held = {file.name: file.read_text() for file in (DOCS / FIGURES).iterdir()}
    shown = re.findall(rf"!\[.+\]\((?:\.\./)?{FIGURES}/(\S+)\)", whole(made))
    assert sorted(held) == sorted(made.figures) == sorted(shown)
    for name, picture in made.figures.items():
        assert len(held[name].encode()) < 100_000
        assert difference(held[name], picture) == "", name


def difference(held, drawn):
    """What a reader would see differ; nothing of it when only ids do, or numbers by less than can be seen."""
    pinned = f"matplotlib=={matplotlib.__version__}" in (DOCS.parent / "constraints.txt").read_text().split()
    before, after = (list(ElementTree.fromstring(picture).iter()) for picture in (held, drawn))
    words, now = ([element.text for element in elements if element.text] for elements in (before, after))
    if words != now:  # the first of them is the title, which tells the numbers
        return f"{set(words) ^ set(now)}"
    if not pinned:  # another version sets them elsewhere
        return ""
    if [element.tag for element in before] != [element.tag for element in after]:
        return "other shapes"
    return "".join(
        f"{name}: {one.get(name)} and {other.get(name)}; "
        for one, other in zip(before, after, strict=True)
        for name in one.attrib.keys() | other.attrib.keys()
        if name not in ("id", "href", "clip-path") and not close(one.get(name, ""), other.get(name, ""))
    )


def close(one, other):
    """The same words between the same numbers, to a tenth of a point: the last digit is the processor's."""
    number = r"-?\d+(?:\.\d+)?"
    if re.split(number, one) != re.split(number, other):
        return False
    pairs = zip(re.findall(number, one), re.findall(number, other), strict=True)
    return all(abs(float(first) - float(second)) <= 0.1 for first, second in pairs)


def test_a_figure_of_other_records_is_found_out(made_of_one, tmp_path):
    one, other = made_of_one.figures, make_pages_of_one(tmp_path, 0.71).figures
    # SGD has the same settings in both presets.
    assert sorted(one) == ["agreement.svg", "figure1-recommended.svg", "figure1-released.svg", "paper-and-ours.svg"]
    for name in one:
        assert difference(one[name], one[name]) == ""
    for name in ("figure1-released.svg", "paper-and-ours.svg"):
        assert difference(one[name], other[name]) != ""
    shape = re.search(r'<path d="M ([\d.]+)', one["paper-and-ours.svg"])
    moved = one["paper-and-ours.svg"].replace(shape[0], f'<path d="M {float(shape[1]) + 1}')
    assert "d: M" in difference(one["paper-and-ours.svg"], moved)


def test_records_that_are_nowhere(tmp_path):
    with pytest.raises(FolderError, match=r"`records` must be a folder that is there, got .*nowhere"):
        make_pages(tmp_path / "nowhere")


def test_without_records_every_table_is_missing(tmp_path):
    made = make_pages(tmp_path)
    text = whole(made)
    assert made.figures == {}
    assert text.count("not run yet") == 3 * 11
    assert text.count("- Figure 2, the geometry of an update: drawn from the steps of a run, of which no sample") == 3
    assert "nothing has been run yet" in made.texts[FRONT]
    assert "- Table 7, Split TinyImageNet, WRN-28-10: not run yet (`sfao reproduce table7 --preset paper`)" in text


def test_tables_with_records_are_shown_and_the_others_listed_with_their_reason(made_of_three):
    text = whole(made_of_three)
    assert "## Table 1, Split MNIST: accuracy in % after the last task; preset released" in text
    assert "ours, n = 3 of 5" in text  # the paper's five
    assert "60,000 training and 10,000 test images of mnist; on cpu (x86_64)" in text
    assert "Table 7, Split TinyImageNet, WRN-28-10: Tiny ImageNet was not at hand" in text
    assert text.count("not run yet") == 11 + 9 + 10  # SGD of table 1 has the same settings in two presets
    assert "every row as the paper's was produced" not in text


def test_rows_run_as_the_paper_s_were_are_a_table_of_their_own(tmp_path):
    si = protocol(1, "released", True).cells["SI", ""]
    write_lines(tmp_path / "released" / "split-mnist.jsonl", [record(TABLE1["SGD"]), record(si)])
    made = make_pages(tmp_path)
    assert len(re.findall("## Table .*every row as the paper's was produced", whole(made))) == 1
    assert "paper-and-ours-as-released.svg" in made.figures


def test_records_of_settings_that_have_changed_are_named(made_of_three):
    assert "1 records are of settings that the preset no longer has, and stand in no table: sgd on split-mnist." in (
        whole(made_of_three)
    )


def test_a_damaged_record_is_named(tmp_path):
    file = tmp_path / "released" / "split-mnist.jsonl"
    write_lines(file, [record(TABLE1["SGD"])])
    file.write_text(file.read_text() + "{\n")
    with pytest.raises(FolderError, match=r"split-mnist\.jsonl:2 must be the record of a run"):
        make_pages(tmp_path)


def test_the_script_collects_and_writes(made_of_one, tmp_path):
    series = TABLE1["SGD"]
    folder = series.folder(tmp_path / "runs", 0)
    folder.mkdir(parents=True)
    record(series, 0, 0.70).save(folder)
    places = ["--records", tmp_path / "records", "--docs", tmp_path]
    done = make("--collect", tmp_path / "runs", *places)
    assert (done.returncode, done.stderr) == (0, "")
    assert {name: (tmp_path / name).read_text() for name in made_of_one.texts} == made_of_one.texts
    assert {file.name: file.read_text() for file in (tmp_path / FIGURES).iterdir()} == made_of_one.figures != {}
    assert "ours, n = 1 of 5" in (tmp_path / "reproduction" / "released.md").read_text()


def test_the_script_says_in_a_line_what_is_wrong(tmp_path):
    empty = make("--collect", tmp_path, "--records", tmp_path / "records", "--docs", tmp_path)
    assert empty.returncode == 1
    assert empty.stderr.startswith("make_reproduction: `collect` must be a folder that holds finished runs")
    assert not (tmp_path / FRONT).exists()
