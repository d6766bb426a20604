"""The page on baselines: its numbers are those of the records beside it, and its commands are commands."""

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from sfao.lab.paper.archive import Archive, read_lines
from sfao.lab.run.config import configure, parse_setting

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("make_baselines", DOCS / "make_baselines.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def archive():
    return Archive(read_lines(DOCS / "records" / "baselines.jsonl"))


def test_the_page_is_that_of_the_records_beside_it(maker, archive):
    page = (DOCS / "baselines.md").read_text(encoding="utf-8")
    assert page == maker.make_page(archive), "python docs/make_baselines.py"
    assert "<<" not in page


def test_every_record_is_of_a_check(maker, archive):
    checks = [(protocol, check) for protocol in maker.PROTOCOLS for check in protocol.checks]
    assert sum(len(maker.find_records(archive, *each)) for each in checks) == len(archive)


def test_every_check_can_be_configured(maker):
    for protocol in maker.PROTOCOLS:
        for check in protocol.checks:
            benchmark, _, method, *rest = f"{check.command} {protocol.settings}".split()
            settings = dict(parse_setting(text) for text in rest if text != "--set")
            assert configure(benchmark, method, settings=settings).method == method


def test_few_seeds_are_told(maker, archive):
    record = archive.records[0]
    assert maker.say_metric([], "average_accuracy") == "not run"
    assert maker.say_metric([record], "average_accuracy").endswith("(one seed)")
    assert maker.say_metric([record] * 2, "average_accuracy").endswith("± 0.00 (2 seeds)")
    assert maker.say_metric([record] * 3, "average_accuracy").endswith("± 0.00")


def test_finished_runs_are_collected_and_others_refused(maker, archive, tmp_path):
    runs = tmp_path / "runs"
    runs.mkdir()
    with pytest.raises(ValueError, match="must be a folder that holds finished runs of a check"):
        maker.collect(runs, tmp_path / "kept.jsonl")
    record = archive.records[0]
    (runs / "one").mkdir()
    record.save(runs / "one")
    shutil.copy(DOCS / "records" / "baselines.jsonl", tmp_path / "kept.jsonl")
    assert len(maker.collect(runs, tmp_path / "kept.jsonl")) == len(archive)  # it was there already
    lines = (tmp_path / "kept.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["seed"] for line in lines) == sorted(one.seed for one in archive.records)
