"""What a reader does with the report: sort, filter, ask for values, download a table."""

import csv
import io
import random
import re
import shutil
from itertools import pairwise

import pytest
from playwright.sync_api import expect

from sfao.lab.metrics import paired_test, spread
from sfao.lab.report.comparison import compare_records
from sfao.lab.report.comparison_table import format_interval, format_mean, format_p_value, make_table
from sfao.lab.report.runs import load_runs
from sfao.lab.report.write import PAGE
from tests.lab.report.real_runs import report, share, varied
from tests.records import change_record

SEEDS = (0, 1, 2)
HEADINGS = [
    "method", "seeds", "accuracy", "95 % interval", "learned", "forgetting", "held", "time",
    "\N{MULTIPLICATION SIGN} sgd", "p", "notes",
]  # fmt: skip


def make_runs(folder, made):
    """Runs of four methods over three seeds that differ in all numbers; one diverged, one failed."""
    chance = random.Random(0)
    for number, method in enumerate(("sgd", "ewc", "si", "sfao")):
        for seed in SEEDS:
            source = folder / f"{method}-{seed if method != 'si' and seed < 2 else 0}"
            seconds = (1.0, 4.0, 2.0)[seed] * (1 + 0.3 * number)
            varied(source, made / "runs" / f"{method}-{seed}", chance, seed=seed, seconds=seconds)
    change_record(made / "runs" / "si-2", status="failed", metrics={}, accuracy_matrix=[], error="no more disk")
    report(made / "runs", made)


@pytest.fixture(scope="module")
def made(browser, folder, tmp_path_factory):
    return share(tmp_path_factory, "every-and-chosen-seeds", lambda path: make_runs(folder, path))


@pytest.fixture
def every(context, made):
    """The report of four methods over three seeds."""
    page = context.new_page()
    page.goto((made / PAGE).as_uri())
    return page


def results(page):
    return page.locator("table.sortable").first


def cells(page):
    """The text of the cells, row by row."""
    return results(page).locator("tbody tr").evaluate_all("all => all.map(r => [...r.cells].map(c => c.textContent))")


def names(page):
    return [row[0] for row in cells(page)]


def choose(page, *values):
    for value in values:
        page.locator("#filter").get_by_label(str(value), exact=True).check()


# -- Numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 10, 31])
def test_the_statistics_of_the_page_are_those_of_the_laboratory(page, count):
    chance = random.Random(count)
    ours, theirs = ([chance.random() for _ in range(count)] for _ in range(2))
    expected, found = spread(ours), page.evaluate("values => statistics.spread(values)", ours)
    for name in ("mean", "std", "low", "high"):
        value = getattr(expected, name)
        assert found[name] == (value if value is None else pytest.approx(value, rel=1e-9))
    by_seed = [dict(enumerate(each)) for each in (ours, theirs)]
    p = page.evaluate("values => statistics.test(values)", [a - b for a, b in zip(ours, theirs, strict=True)])
    assert p == (None if count == 1 else pytest.approx(paired_test(*by_seed, "").p, abs=1e-12))


@pytest.mark.parametrize("chosen", [(), (0,), (0, 2), (1, 2), SEEDS])
def test_the_table_is_the_comparison_of_the_chosen_seeds(every, made, chosen):
    runs = [run.record for run in load_runs([made / "runs"])]
    everything = compare_records(runs).groups[0]
    (group,) = compare_records(run for run in runs if run.seed in (chosen or SEEDS)).groups
    choose(every, *chosen)
    bold = (
        results(every)
        .locator("tbody tr")
        .evaluate_all("all => all.map(row => [...row.cells].map(cell => !!cell.querySelector('strong')))")
    )
    for row, shown, is_bold in zip(group.rows, cells(every), bold, strict=True):
        seeds = str(row.done) if row.is_complete else f"{row.done} of {row.asked}"
        assert shown[:6] == [
            row.method, seeds, format_mean(row.accuracy), format_interval(row.accuracy), format_mean(row.learned),
            format_mean(row.forgetting),
        ]  # fmt: skip
        assert shown[8] == ("" if row.times_sgd is None else f"{row.times_sgd:.1f}")
        assert shown[10] == row.failures
        if group.baseline == everything.baseline:  # the page keeps the baseline of all seeds
            assert shown[9] == ("baseline" if row.method == group.baseline else format_p_value(row))
        best = {column.title: column.is_best(row) for column in make_table(group).columns}
        titles = ["accuracy", "learned", "forgetting", "held", "time"]
        assert [is_bold[HEADINGS.index(title)] for title in titles] == [best[title] for title in titles]


def test_figures_are_of_the_chosen_runs(every, made):
    choose(every, 1, "sgd", "sfao")
    matrices = every.locator("table.matrix")
    assert matrices.locator("caption").all_inner_texts() == ["sgd", "sfao"]
    record = next(run.record for run in load_runs([made / "runs"]) if run.name == "sgd-1")
    shown = matrices.first.locator("td[data-value]").evaluate_all("all => all.map(one => one.dataset.value)")
    expected = record.accuracy_matrix
    assert shown == [
        f"task {task + 1} after task {after + 1}: {expected[after][task]:.3f}" for after in (0, 1) for task in (0, 1)
    ]
    curves = every.locator("figure", has_text="Forgetting while").locator("circle")
    assert curves.evaluate_all("all => all.map(one => one.dataset.value)")[1] == (
        f"sgd after task 2: {record.metrics['average_forgetting']:.3f}"
    )
    points = every.locator("figure", has_text="Accuracy against cost").locator("svg").first.locator("circle")
    assert [text.split(":")[0] for text in points.evaluate_all("all => all.map(o => o.dataset.value)")] == [
        "sgd",
        "sfao",
    ]
    gates = every.locator("figure", has_text="Decisions over time").locator("svg .title").all_text_contents()
    assert gates
    assert all(title.startswith("sfao · ") for title in gates)


# -- Sorting ---------------------------------------------------------------------------------------------------------


def test_each_column_sorts_both_ways_with_empty_cells_last(page):
    table = results(page)
    assert table.locator("thead th").all_inner_texts() == [f"{title}" for title in HEADINGS]
    shown = set(names(page))
    for number, name in enumerate(HEADINGS):
        heading = table.locator("thead th").nth(number)
        directions = []
        for _ in range(2):
            heading.get_by_role("button").click()
            directions.append(heading.get_attribute("aria-sort"))
            column = table.evaluate(
                "(table, n) => [...table.tBodies[0].rows].map(r => [r.cells[n].innerText, r.cells[n].dataset.number])",
                number,
            )
            keys = [text if value is None else value and float(value) for text, value in column]
            known = [key for key in keys if key != ""]
            assert keys[: len(known)] == known, name
            ordered = known if directions[-1] == "ascending" else known[::-1]
            assert all(one <= other for one, other in pairwise(ordered)), name
            assert set(names(page)) == shown
            assert table.locator("th[aria-sort]").count() == 1
        assert sorted(directions) == ["ascending", "descending"], name


# -- Filter ----------------------------------------------------------------------------------------------------------


def test_a_filter_leaves_what_was_chosen_and_stays_in_the_address(page):
    everything = names(page)
    choose(page, "sfao", "sgd")
    assert names(page) == ["sgd", "sfao"]
    assert page.locator("#filtered").inner_text() == "Showing 2 of 5 methods."
    choose(page, "1")
    assert "Sentences above stay over all seeds." in page.locator("#filtered").inner_text()
    runs = page.locator("table.dense").first.locator("tbody th").all_inner_texts()
    assert runs == ["sgd-1", "sfao-1"]
    assert page.locator(".details").first.locator("details:visible").count() == 2
    assert page.get_by_text("Nothing here passes the filter.").count() >= 1  # the other group has seed 0 alone
    page.locator("nav a[href='#group-1-runs']").click()
    expect(page).to_have_url(re.compile("#group-1-runs&.*row=sfao"))
    page.reload()
    assert names(page) == ["sgd", "sfao"]
    expect(page.locator("#group-1-runs")).to_be_in_viewport()
    page.get_by_role("button", name="Show everything").click()
    assert names(page) == everything
    assert page.locator("#filtered").is_hidden()


# -- Values and downloads --------------------------------------------------------------------------------------------


def test_values_show_under_the_pointer(page):
    tip = page.locator("#value")
    cell = page.locator("table.matrix td[data-value]").first
    cell.scroll_into_view_if_needed()
    cell.hover()
    expect(tip).to_have_text(re.compile(r"^task 1 after task 1: 0\.\d{3} ± 0\.\d{3}$"))
    page.locator("h3").first.hover()
    expect(tip).to_be_hidden()
    point = page.locator("figure circle[data-value]").first
    point.hover()
    expect(tip).to_have_text(re.compile(r"^\S.*: accuracy 0\.\d{3}.*, \d"))


def test_a_table_downloads_as_it_is_shown(every):
    choose(every, "sfao", "sgd")
    results(every).get_by_role("button", name="accuracy").click()
    with every.expect_download() as caught:
        every.locator(".download").first.click()
    assert caught.value.suggested_filename == "group-1-results.csv"
    text = caught.value.path().read_bytes().decode("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["method"] for row in rows] == names(every)
    assert [f"{float(row['accuracy']):.3f} ± {float(row['accuracy, std']):.3f}" for row in rows] == [
        row[2] for row in cells(every)
    ]
    assert len(rows[0]["accuracy"]) > 6  # in full


def test_a_download_holds_no_formula(context, folder, tmp_path):
    for number, method in enumerate(("=1+1", "-x,y", 'say "@a"', "+ 方法")):
        shutil.copytree(folder / "sgd-0", tmp_path / "runs" / str(number))
        change_record(tmp_path / "runs" / str(number), method=method)
    page = context.new_page()
    page.goto(report(tmp_path / "runs", tmp_path).as_uri())
    with page.expect_download() as caught:
        page.locator(".download").first.click()
    rows = list(csv.reader(io.StringIO(caught.value.path().read_bytes().decode("utf-8-sig"))))
    assert {row[0] for row in rows[1:]} == {"'=1+1", "'-x,y", 'say "@a"', "'+ 方法"}
