"""Chosen seeds: what the page computes and draws anew is what a report of those seeds alone has."""

import json
import random
import shutil

import pytest
from playwright.sync_api import expect

from sfao.lab.report.page.write import PAGE
from sfao.lab.run.statistics import paired_test, spread
from tests.browser.tables import results
from tests.lab.report.real_runs import report, share, varied
from tests.records import change_record

SEEDS = (0, 1, 2)
CHOSEN = (0, 2)


def make_runs(folder, made):
    """Runs of four methods over three seeds that differ in all numbers, one failed; and those of the chosen seeds."""
    every, chosen = made / "every", made / "chosen"
    chance = random.Random(0)
    for number, method in enumerate(("sgd", "ewc", "si", "sfao")):
        for seed in SEEDS:
            # si diverged with seed 1, and there is no seed 2.
            source = folder / f"{method}-{seed if method != 'si' and seed < 2 else 0}"
            # Seconds that differ so much that the bar of two seeds is longer than the axis.
            seconds = (1.0, 4.0, 2.0)[seed] * (1 + 0.3 * number)
            varied(source, every / f"{method}-{seed}", chance, seed=seed, seconds=seconds)
    change_record(every / "si-2", status="failed", metrics={}, accuracy_matrix=[], error="no more disk")
    for run in every.iterdir():
        if int(run.name[-1]) in CHOSEN:
            shutil.copytree(run, chosen / run.name)
    for runs in (every, chosen):
        report(runs, made / f"report-{runs.name}")


@pytest.fixture(scope="module")
def addresses(browser, folder, tmp_path_factory):
    """Of the reports of every seed, and of the chosen."""
    made = share(tmp_path_factory, "every-and-chosen-seeds", lambda path: make_runs(folder, path))
    return [(made / f"report-{name}" / PAGE).as_uri() for name in ("every", "chosen")]


def choose(page, *seeds):
    for seed in seeds:
        page.locator("#filter").get_by_label(str(seed), exact=True).check()


def cells(page):
    return results(page).locator("tbody tr").evaluate_all("all => all.map(row => [...row.cells].map(c => c.innerHTML))")


def values(page):
    """The numbers behind the cells of the table, by which it sorts."""
    found = results(page).locator("tbody td.number").evaluate_all("all => all.map(cell => cell.dataset.value)")
    return [float(value) if value else None for value in found]


MARKS = """all => all.map(panel => [
  panel.closest("figure").id, panel.dataset.row ?? "", panel.dataset.layer ?? "",
  (panel.marks ?? JSON.parse(panel.dataset.marks).map(([x, y, width, height, text, row, seed]) =>
    ({x, y, width, height, text, row, seed}))).map(({x, y, text, seed}) => ({x, y, text, seed})),
])"""


def marks(page, seeds=SEEDS):
    """{panel: (text, place) of its marks, of single runs only those of the seeds}"""
    found = page.locator(".panel[data-marks]").evaluate_all(MARKS)
    return {
        (*names, number): [(one["text"], one["x"], one["y"]) for one in own if one.get("seed") in (None, *seeds)]
        for number, (*names, own) in enumerate(found)
    }


@pytest.fixture
def untouched(tabs, addresses):
    """The report of every seed, for tests that leave it as it is."""
    return tabs[0].show(addresses[0])


@pytest.fixture
def every(tabs, addresses):
    """The report of every seed, for tests that choose."""
    yield tabs[0].show(addresses[0])
    tabs[0].drop()


@pytest.fixture
def alone(tabs, addresses):
    """The report of the chosen seeds, which nobody changes."""
    return tabs[1].show(addresses[1])


# -- The table ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 10, 31])
def test_the_statistics_of_the_page_are_those_of_the_report(untouched, count):
    chance = random.Random(count)
    ours, theirs = ([chance.random() for _ in range(count)] for _ in range(2))
    expected, found = spread(ours), untouched.evaluate("values => statistics.spread(values)", ours)
    for name in ("mean", "std", "low", "high"):
        assert found[name] == (
            None if count == 1 and name != "mean" else pytest.approx(getattr(expected, name), rel=1e-9)
        )
    by_seed = [dict(enumerate(each)) for each in (ours, theirs)]
    p = untouched.evaluate("values => statistics.test(values)", [a - b for a, b in zip(ours, theirs, strict=True)])
    assert p == (None if count == 1 else pytest.approx(paired_test(*by_seed, "").p, abs=1e-12))


def test_differences_without_a_spread_have_no_p_or_are_none(untouched):
    assert untouched.evaluate("statistics.test([0.1, 0.1, 0.1])") is None
    assert untouched.evaluate("statistics.test([0, 0, 0])") == 1


def test_the_table_is_that_of_a_report_of_the_chosen_seeds(every, alone):
    first, numbers = cells(every), values(every)
    choose(every, *CHOSEN)
    assert cells(every) == cells(alone)
    assert values(every) == pytest.approx(values(alone), abs=1e-9)
    assert cells(every) != first
    assert "1 failed" in results(every).inner_text()
    every.get_by_role("button", name="Show everything").click()
    assert cells(every) == first
    assert values(every) == numbers


def test_one_seed_has_no_spread_and_no_p(every):
    choose(every, 1)
    text = results(every).inner_text()
    assert "±" not in text
    assert "<0.0001" not in text
    assert [row[1] for row in cells(every)] == ["1"] * 4


def test_a_sorted_table_stays_sorted_by_its_new_numbers(every):
    results(every).get_by_role("button", name="accuracy").click()
    for seed in SEEDS:
        every.get_by_role("button", name="Show everything").click()
        choose(every, seed)
        shown = results(every).locator("tbody tr td:nth-child(3)").evaluate_all("all => all.map(c => c.dataset.value)")
        known = [float(value) for value in shown if value]
        assert known == sorted(known, reverse=True)
        assert len(known) >= 3


# -- Figures -----------------------------------------------------------------------------------------------


def test_figures_tell_the_values_of_a_report_of_the_chosen_seeds(every, alone):
    before = marks(every, CHOSEN)
    choose(every, *CHOSEN)
    found, expected = marks(every, CHOSEN), marks(alone, CHOSEN)
    assert {panel: [text for text, *_ in own] for panel, own in found.items()} == {
        panel: [text for text, *_ in own] for panel, own in expected.items()
    }
    assert len({figure for figure, *_ in found}) == 5
    assert sum(found[panel] != before[panel] for panel in found) > 8


def test_all_seeds_chosen_draw_what_was_there(every):
    before = marks(every)
    texts = """all => all.map(svg => [...svg.querySelectorAll("text")].filter(one => !one.closest(".stale"))
      .map(one => one.textContent).sort())"""
    written = every.locator(".panel svg").evaluate_all(texts)
    choose(every, *SEEDS)
    after = marks(every)
    assert before.keys() == after.keys()
    for panel, own in before.items():
        assert [text for text, *_ in after[panel]] == [text for text, *_ in own]
        places = [number for _, *place in after[panel] for number in place]
        assert places == pytest.approx([number for _, *place in own for number in place], abs=0.11), panel
    assert every.locator(".panel svg").evaluate_all(texts) == written
    every.get_by_role("button", name="Show everything").click()
    assert marks(every) == before
    assert every.locator(".anew, .stale").count() == 0


@pytest.mark.parametrize("seeds", [(1,), (0, 1), (0, 2), (1, 2)])
def test_what_is_drawn_lies_where_its_values_are_told_and_inside_its_panel(every, seeds):
    choose(every, *seeds)
    figures = every.locator("figure:has(.anew)")
    assert figures.count() == 5
    outside = every.locator(".anew > *").evaluate_all(
        """all => all.filter(one => {
          const [own, panel] = [one, one.closest(".panel")].map(each => each.getBoundingClientRect());
          return own.left < panel.left - 2 || own.right > panel.right + 2 ||
            own.top < panel.top - 2 || own.bottom > panel.bottom + 2;
        }).map(one => one.outerHTML)"""
    )
    assert outside == []
    # Lines and bars end at the axes, before their numbers.
    beyond = every.locator(".panel:has(.anew polyline)").evaluate_all(
        """all => all.flatMap(panel => {
          const block = panel.closest("figure").querySelector("script");
          const at = [...panel.parentElement.children].indexOf(panel);
          const [x0, y0, x1, y1] = JSON.parse(block.textContent).panels[at].frame;
          return [...panel.querySelectorAll(".anew polyline")].map(one => one.getBBox()).filter(box =>
            box.x < x0 - 0.1 || box.y < y0 - 0.1 || box.x + box.width > x1 + 0.1 || box.y + box.height > y1 + 0.1);
        })"""
    )
    assert beyond == []
    # A bar of the heat map, a bar of the histogram: each has its mark in its middle.
    off = every.locator(".panel:has(.anew rect[shape-rendering])").evaluate_all(
        """all => all.flatMap(panel => {
          const boxes = [...panel.querySelectorAll(".anew rect[shape-rendering]")].map(one => one.getBBox());
          return panel.marks.filter(({x, y}) => !boxes.some(box =>
            x >= box.x && x <= box.x + box.width && y >= box.y && y <= box.y + box.height));
        })"""
    )
    assert off == []


PLACE_OF_FIRST_MARK = """panel => {
  const { x, y } = panel.marks[0];
  const at = new DOMPoint(x, y).matrixTransform(panel.querySelector("svg").getScreenCTM());
  return [at.x, at.y];
}"""


def test_a_value_under_the_pointer_is_of_the_chosen_seeds(every):
    choose(every, 1)
    panel = every.locator(".panel[data-row='sgd'][data-marks]").first
    panel.scroll_into_view_if_needed()
    tip = every.locator("#value")
    for _ in range(50):  # while the page still moves below the pointer
        every.mouse.move(*panel.evaluate(PLACE_OF_FIRST_MARK))
        every.wait_for_timeout(100)
        if tip.is_visible():
            break
        every.mouse.move(0, 0)
    expect(tip).to_be_visible()
    assert "±" not in tip.inner_text()
    matrix = json.loads(every.locator(".numbers").first.text_content())["rows"]["sgd"]["runs"][1]["matrix"]
    assert tip.inner_text() == f"task 1 after task 1: {matrix[0][0]:.3f}"


def test_the_line_through_the_best_is_of_the_methods_that_are_shown(every):
    for method in ("ewc", "si"):
        every.locator("#filter").get_by_label(method, exact=True).check()
    figure = every.locator("figure").first
    assert figure.locator(".anew text").all_text_contents() == ["ewc", "si"] * 2
    line = figure.locator(".anew polyline").first.get_attribute("points").split()
    uses = (
        figure.locator(".panel")
        .first.locator(".anew use")
        .evaluate_all("all => all.map(one => [one.x.baseVal.value, one.y.baseVal.value])")
    )
    assert [float(number) for number in line[0].split(",")] in [pytest.approx(place, abs=0.01) for place in uses]
    assert "Drawn for the chosen methods" in figure.inner_text()
    assert results(every).inner_text().count("±") > 0


# -- What is told ------------------------------------------------------------------------------------------


def test_what_stays_over_all_seeds_says_so_while_seeds_are_chosen(every):
    notes = every.locator(".seeds-note:visible, #filtered:visible")
    assert notes.count() == 0
    choose(every, *CHOSEN)
    assert "sentences stay over all seeds" in every.locator("#filtered").inner_text()
    assert "of seeds 0 and 2" in every.locator(".notes .seeds-note").first.inner_text()
    for figure in every.locator("figure:has(.panel:visible)").all():
        one_run = figure.locator(".panel[data-seed]").count()
        assert one_run or "Drawn for seeds 0 and 2" in figure.inner_text()
        assert one_run or figure.locator("p.unseen").text_content().startswith("Drawn for seeds 0 and 2")
    every.emulate_media(media="print")
    assert every.locator("#filtered").is_visible()
    every.emulate_media(media="screen")
    every.get_by_role("button", name="Show everything").click()
    assert notes.count() == 0


def test_a_figure_that_cannot_be_drawn_anew_says_that_it_is_over_all_seeds(every):
    every.locator("figure > script").first.evaluate("script => script.remove()")
    choose(every, 1)
    assert "Over all seeds" in every.locator("figure").first.inner_text()
    assert "Over all seeds" not in every.locator("figure").nth(1).inner_text()


def test_seeds_in_the_address_are_drawn_at_once_and_a_group_without_them_says_so(context, address):
    page, errors = context.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{address}#seed=1")
    assert page.locator(".anew").count() > 8
    other = page.locator("section.group").nth(1)  # the other benchmark has seed 0 alone
    assert other.locator("table").first.locator("tbody td").first.inner_text() == "0"
    assert "no run of these seeds" in other.inner_text()
    assert errors == []
