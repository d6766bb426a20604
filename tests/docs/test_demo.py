"""What the README shows of the demo: its table and its figure are those of the records that are kept."""

import importlib.util
from pathlib import Path
from xml.etree import ElementTree

import pytest

from sfao.cli.demo import BENCHMARK, SEEDS, SETTINGS, list_methods
from sfao.experiment.errors import FolderError
from sfao.experiment.plan import plan
from sfao.reports.comparison import compare_records

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def load_script():
    spec = importlib.util.spec_from_file_location("make_demo", ROOT / "docs" / "make_demo.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_demo = load_script()


@pytest.fixture(scope="module")
def records():
    return make_demo.read_demo()


def test_the_table_in_the_readme_is_that_of_the_records(records):
    assert make_demo.replace_demo(README, make_demo.print_demo(records, compare_records(records))) == README


def test_the_figure_in_the_readme_shows_the_numbers_of_the_records(records):
    assert f"]({make_demo.FIGURE.relative_to(ROOT)})" in README
    held, drawn = (
        [element.text for element in ElementTree.fromstring(picture).iter() if element.text and element.text.strip()]
        for picture in (make_demo.FIGURE.read_text(), make_demo.make_figure(compare_records(records)))
    )
    assert held == drawn


def test_the_records_are_of_the_demo_as_it_is_now(records):
    planned = [job.config.model_dump() for job in plan(BENCHMARK, list_methods(), SEEDS, Path("x"), settings=SETTINGS)]
    assert [record.config for record in records] == planned


def test_a_readme_without_the_place_for_it_is_refused():
    with pytest.raises(FolderError, match="must have the lines"):
        make_demo.replace_demo("nothing", "table")
