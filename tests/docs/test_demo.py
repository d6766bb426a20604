"""The figure of the README belongs to the records of the demo."""

import importlib.util
from pathlib import Path
from xml.etree import ElementTree

import pytest

from sfao.lab.cli.demo import BENCHMARK, SEEDS, SETTINGS, list_methods
from sfao.lab.report.comparison import compare_records
from sfao.lab.run.plan import plan

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
