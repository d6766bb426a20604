"""The report as a file: complete, escaped, under a policy that names what is in it, and the same every time."""

import json
import os
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html import escape, unescape
from html.parser import HTMLParser

import pytest
import yaml

from sfao.lab.report.comparison import compare_records
from sfao.lab.report.figures import draw_figures
from sfao.lab.report.groups import group_runs
from sfao.lab.report.headline import find_findings
from sfao.lab.report.page.settings import describe_seeds, describe_settings
from sfao.lab.report.page.write import render_page
from sfao.lab.report.runs import load_runs
from sfao.lab.run.record import RECORD, Record
from tests.lab.report.real_runs import (
    HOSTILE,
    edited,
    report,
    run,
    share_comparison,
    share_hostile_report,
    share_report,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return share_comparison(tmp_path_factory)


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    return share_report(tmp_path_factory).read_text()


class Elements(HTMLParser):
    """(tag, attributes) of every element."""

    def __init__(self, html):
        super().__init__()
        self.found = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    handle_startendtag = handle_starttag


def sortable_tables(html):
    """Rows of (text, value) of each table that sorts."""
    tables = re.findall(r'<table class="sortable.*?</table>', html, re.DOTALL)
    return [[_cells(row) for row in re.findall(r"<tr.*?</tr>", table, re.DOTALL)[1:]] for table in tables]


def without_style_and_script(html):
    return re.sub(r"<(style|script)>.*?</\1>", "", html, flags=re.DOTALL)


def _cells(row):
    cells = re.findall(r"<t[hd]([^>]*)>(.*?)</t[hd]>", row, re.DOTALL)
    values = [re.search(r'data-value="(.*?)"', attributes) for attributes, _ in cells]
    texts = [unescape(re.sub(r"<.*?>", "", text)) for _, text in cells]
    return [(text, value.group(1) if value else None) for text, value in zip(texts, values, strict=True)]


def test_the_policy_names_the_style_and_the_script_of_the_page_and_nothing_else(html):
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="(.*?)">', html)
    rules = dict(rule.split(" ", 1) for rule in unescape(policy).split("; "))
    for name in ("style", "script"):
        (text,) = re.findall(rf"<{name}>(.*?)</{name}>", html, re.DOTALL)
        assert rules[f"{name}-src"] == f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert rules["img-src"] == "data:"


def test_nothing_comes_from_elsewhere(html):
    elements = Elements(html).found
    links = [
        attributes[name] for _, attributes in elements for name in ("src", "href", "xlink:href") if name in attributes
    ]
    assert links
    assert all(link.startswith(("#", "data:")) for link in links)
    assert set(re.findall(r"https?://[^\s\"<]+", html)) == {"http://www.w3.org/2000/svg"}
    assert not [tag for tag, attributes in elements if "style" in attributes or tag in ("iframe", "object", "base")]


def test_every_id_is_there_once_and_every_reference_leads_somewhere(html):
    elements = Elements(html).found
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    references = re.findall(r"url\(#(.*?)\)", html) + re.findall(r'(?:href="#|aria-labelledby=")(.*?)"', html)
    assert set(references) <= set(ids)


def test_the_table_holds_the_numbers_of_the_comparison(folder, html):
    compared = compare_records(run.record for run in load_runs([folder]))
    shown = sortable_tables(html)[0]
    rows = compared.groups[0].rows
    assert [row[0][0] for row in shown] == [row.method for row in rows]
    for cells, row in zip(shown, rows, strict=True):
        values = [
            row.done,
            row.accuracy and row.accuracy.mean,
            row.accuracy and row.accuracy.low,
            row.learnt and row.learnt.mean,
            row.forgetting and row.forgetting.mean,
            row.memory_bytes,
            row.seconds,
            row.times_sgd,
            row.test and row.test.p,
        ]
        assert [value for _, value in cells[1:10]] == ["" if value is None else str(value) for value in values]
        assert cells[10][0] == row.trouble
        if row.done > 1:
            assert cells[2][0] == f"{row.accuracy.mean:.3f} ± {row.accuracy.std:.3f}"
    assert {row.done for row in rows} == {0, 1, 2}


def test_groups_are_apart_and_in_the_table_of_contents(html):
    assert html.count('<section class="group"') == 2
    (contents,) = re.findall(r'<nav aria-label="Contents">.*?</nav>', html, re.DOTALL)
    linked = re.findall(r'href="(.*?)"', contents)
    assert [link for link in linked if link.count("-") == 1] == ["#group-1", "#group-2"]
    assert {f"#group-2-{part}" for part in ("results", "runs", "settings", "about")} < set(linked)
    assert [len(table) for table in sortable_tables(html)] == [5, 8, 1, 1]  # methods and runs of each


def test_one_group_opens_with_its_finding_and_one_figure_and_tells_the_rest_later(folder, tmp_path):
    page = report(folder / "sgd-0", tmp_path).read_text()
    (headline,) = re.findall(r"<h1>(.*?)</h1>", page)
    assert headline == find_findings([load_runs([folder / "sgd-0"])[0].record])[0].headline
    places = [page.index(part) for part in ("<h1>", "<figure", "<table", "<dl")]
    assert places == sorted(places)
    assert "finding" not in without_style_and_script(page)


def test_data_that_is_not_the_full_set_is_told_out_loud(folder, html, tmp_path):
    assert html.count("Not the full data.") == 2
    data = json.loads((folder / "sgd-0" / RECORD).read_text())["data"]
    full = edited(folder / "sgd-0", tmp_path / "full", data={**data, "name": "mnist", "embedded": False})
    assert "Not the full data." not in report(full, tmp_path).read_text()
    part = edited(full, tmp_path / "part", data={**data, "embedded": False, "complete": False})
    assert "Not the full data." in report(part, tmp_path).read_text()


def test_what_did_not_end_well_is_marked_with_its_reason(folder, html):
    error = json.loads((folder / "si-1" / RECORD).read_text())["error"]
    assert error
    assert f'<span class="badge">diverged</span> <b>si-1</b>: {escape(error)}' in html
    assert '<span class="badge">1 diverged</span>' in html


def test_every_run_tells_its_configuration_versions_and_weights(folder, html):
    for loaded in load_runs([folder]):
        (details,) = re.findall(rf"<summary><b>{loaded.name}</b>.*?</details>", html, re.DOTALL)
        assert loaded.record.weights_sha256 in details
        assert f"torch {loaded.record.versions['torch']}" in details
        (config,) = re.findall(r"<pre.*?>(.*?)</pre>", details, re.DOTALL)
        assert yaml.safe_load(unescape(config)) == loaded.record.config


def test_differences_are_those_between_variants_and_not_the_seed(folder):
    runs = [run for run in load_runs([folder]) if run.record.method in ("sgd", "si") and run.name != "permuted-0"]
    settings = describe_settings(runs)
    assert [(variant.method, variant.seeds) for variant in settings.variants] == [
        ("sgd", [0, 1]),
        ("si", [0]),
        ("si", [1]),
    ]
    assert settings.differing["lr"][1:] == ["0.01", "1e+30"]
    assert settings.list_own(2)["lr"] == "1e+30"
    assert "seed" not in {**settings.differing, **settings.shared}
    assert settings.shared["epochs"] == "1"


@pytest.mark.parametrize(
    ("seeds", "words"), [([0], "0"), ([1, 0], "0, 1"), ([2, 0, 1], "0 to 2"), ([7, 3, 4], "3, 4, 7")]
)
def test_seeds_in_words(seeds, words):
    assert describe_seeds(seeds) == words


def test_notices_come_first(folder, tmp_path):
    run = edited(folder / "sgd-0", tmp_path / "runs" / "sgd-0")
    (run / "steps.jsonl").write_text("{damaged\n")
    begun = tmp_path / "runs" / "ewc-<0>"
    begun.mkdir()
    (begun / "config.yaml").write_text("method: ewc\n")
    html = report(tmp_path / "runs", tmp_path).read_text()
    (notices,) = re.findall(r'<section class="notices".*?</section>', html, re.DOTALL)
    assert "steps.jsonl is damaged" in notices
    assert "ewc-&lt;0&gt;" in notices
    assert html.index(notices) < html.index("<table")


def test_markup_in_what_runs_say_is_escaped(tmp_path_factory):
    html = share_hostile_report(tmp_path_factory).read_text()
    assert escape(HOSTILE) in html
    assert html.count("<script>") == 1
    assert "49" not in re.findall(r'<ul class="warnings">.*?</ul>', html, re.DOTALL)[0]
    tags = Elements(html).found
    assert not [tag for tag, attributes in tags if tag == "img" or any(name.startswith("on") for name in attributes)]


def test_a_control_character_in_the_name_of_a_method_does_not_stop_the_report(folder, tmp_path):
    for name in ("sfao-0", "sgd-0"):
        edited(folder / name, tmp_path / "runs" / name, method=f"{name[:4]}\x01\x1b\u202e\n")
    page = report(tmp_path / "runs", tmp_path).read_text()
    assert "sfao\\x01\\x1b\\u202e" in page
    assert not {"\x01", "\x1b", "\u202e"} & set(page)


def test_a_name_that_is_no_text_does_not_stop_the_report(folder, tmp_path):
    edited(folder / "sgd-0", tmp_path / "runs" / os.fsdecode(b"caf\xe9"))
    assert "caf\\udce9" in report(tmp_path / "runs", tmp_path).read_text()


def test_the_page_tells_when_runs_ended_as_their_records_have_it(folder, tmp_path):
    runs = tmp_path / "runs"
    edited(folder / "sgd-0", runs / "a", finished="2025-03-01T23:59:59+00:00")
    edited(folder / "sgd-1", runs / "b", finished="2025-03-02T03:30:00+02:00")
    edited(folder / "ewc-0", runs / "c", finished="")
    html = report(runs, tmp_path).read_text()
    assert "<dt>Ended</dt><dd>2025-03-01 23:59 to 2025-03-02 01:30 UTC</dd>" in html
    assert "<dt>Ended</dt><dd>2025-03-02 01:30 UTC, done</dd>" in html
    assert "<dt>Ended</dt><dd>done</dd>" in html
    assert "<dt>Ended</dt><dd>done</dd>" in report(runs / "c", tmp_path).read_text()


def test_settings_that_methods_do_not_share_are_a_warning(folder, html, tmp_path):
    assert "<li><b>settings</b>: methods differ in lr: 0.01 (sgd, ewc, si, sfao), 1e+30 (si)</li>" in html
    assert "methods differ" not in report(folder / "sgd-0", tmp_path).read_text()


def test_the_same_runs_make_the_same_page(folder, html, tmp_path):
    assert report(folder, tmp_path).read_text() == html


def test_forty_runs_are_no_more_than_three_megabytes_and_hundreds_of_settings_are_one_list(folder):
    known = {run.name: run for run in load_runs([folder])}
    made = [
        replace(run, name=f"{method}-{seed}", record=Record(**{**vars(run.record), "seed": seed}))
        for method in ("sgd", "ewc", "sfao", "si")
        for seed in range(10)
        for run in [known[f"{method}-0"]]
    ]
    page = render_page(made, [draw_figures(group) for group in group_runs(made)])
    assert len(page.encode()) < 3e6
    assert [len(table) for table in sortable_tables(page)] == [4, 40]
    swept = [
        replace(run, name=f"{run.name}-{number}", record=Record(**{**vars(run.record), "config": config}))
        for number in range(200)
        for run in [known["sgd-0"]]
        for config in [{**run.record.config, "lr": 0.001 * (number + 1)}]
    ]
    page = render_page(swept, [[]])
    assert "settings listed" in page
    assert [len(table) for table in sortable_tables(page)] == [200, 200]
    assert page.count("<code>lr=") == 400  # in the list, and with every run
    assert "<figure" not in page


def test_a_report_takes_the_place_of_the_one_before(folder, tmp_path):
    assert "ewc" in report(folder / "ewc-0", tmp_path).read_text()
    path = report(folder / "sgd-0", tmp_path)
    assert "ewc" not in path.read_text()
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_rollbacks_and_the_order_of_tasks_are_on_the_page(folder, html, tmp_path):
    guard = {"guard.kind": "measured", "guard.rise": 0.01, "guard.every": 10, "validation": 0.2, "lr": 0.5}
    guarded = run(tmp_path / "runs" / "guarded", "sgd", order=[1, 0], **guard)
    page = report(guarded.parent, tmp_path / "report").read_text()
    rollbacks = json.loads((guarded / RECORD).read_text())["rollbacks"]
    first = f"in task 2, from step {rollbacks[0]['from']} to {rollbacks[0]['to']}: forgetting rose from"
    assert page.count("<dt>Rollback</dt>") == len(rollbacks) > 0
    assert first in page
    assert "<dt>Tasks</dt><dd>5-9, 0-4</dd>" in page
    (cells,) = sortable_tables(page)[1]
    assert (str(len(rollbacks)), str(len(rollbacks))) in cells
    assert "rollbacks" not in without_style_and_script(html)


def test_runs_that_ended_badly_for_one_reason_are_told_once(folder, tmp_path):
    for name in ("sgd-0", "sgd-1", "ewc-0"):
        edited(
            folder / name, tmp_path / "runs" / name, status="failed", metrics={}, accuracy_matrix=[], error="no disk"
        )
    page = report(tmp_path / "runs", tmp_path).read_text()
    assert '<span class="badge">failed</span> <b>sgd-0, sgd-1 and ewc-0</b>: no disk' in page
    headings = re.findall(r'<th scope="col".*?>(.*?)</th>', page.split("<tbody>")[0])
    assert headings == ["method", "seeds", "notes"]  # no column of nothing
