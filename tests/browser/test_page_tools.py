"""What a reader does with the report: go to a part, filter, ask for values, take a table along."""

import csv
import io
import json

from playwright.sync_api import expect

from tests.browser.tables import results
from tests.browser.tabs import PHONE, WIDE
from tests.lab.report.real_runs import FOREIGN


def names(page):
    """The methods in the first table that are shown."""
    return page.locator("table.sortable").first.locator("tbody tr:not(.out) th").all_inner_texts()


def choose(page, value):
    page.locator("#filter").get_by_label(value, exact=True).check()


# -- First screen and contents -----------------------------------------------------------------------------


def test_the_first_screen_has_the_finding_and_a_figure_and_no_table(tab, address):
    for size in (PHONE, WIDE):
        tab.set_viewport_size(size)
        tab.goto(address)
        assert tab.locator(".finding").first.bounding_box()["y"] < size["height"], size
        assert tab.locator("dl, table").first.bounding_box()["y"] > size["height"] - 200, size
    assert tab.locator("figure svg:visible").first.bounding_box()["y"] < WIDE["height"] / 2


def test_contents_stay_in_sight_lead_by_keyboard_and_mark_where_one_is(page):
    link = page.locator("nav a[href='#group-1-runs']")
    link.focus()
    page.keyboard.press("Enter")
    expect(link).to_have_attribute("aria-current", "true")
    heading = page.locator("#group-1-runs")
    assert 0 <= heading.bounding_box()["y"] < WIDE["height"] / 2
    assert link.evaluate("link => link.getBoundingClientRect().bottom <= innerHeight")
    assert page.locator("nav [aria-current]").count() == 1


# -- Filter ------------------------------------------------------------------------------------------------


def test_a_filter_leaves_what_was_chosen_in_tables_figures_and_runs_and_stays_in_the_address(page, address):
    everything = names(page)
    assert page.locator("#filter").evaluate("box => box.open")
    choose(page, "sfao")
    choose(page, "sgd")
    assert names(page) == ["sgd", "sfao"]
    shown = page.locator(".panel[data-row]:visible").evaluate_all("all => all.map(one => one.dataset.row)")
    assert set(shown) == {"sgd", "sfao"}
    assert set(page.locator("svg g[data-row]:visible").evaluate_all("all => all.map(g => g.dataset.row)")) <= set(shown)
    assert page.locator("#shown").inner_text().startswith("Showing 2 of ")
    choose(page, "1")
    runs = page.locator("table.dense").first.locator("tbody tr:visible th").all_inner_texts()
    assert runs == ["sgd-1", "sfao-1"]
    assert page.locator(".details").first.locator("details:visible").count() == 2
    assert "over all seeds" in page.locator("#shown").inner_text()
    assert page.get_by_text("Nothing here passes the filter.").locator("visible=true").count() >= 1  # the other group
    # The address keeps it: over a link of the page, and when it is opened again.
    page.locator("nav a[href='#group-1-runs']").click()
    page.wait_for_function("location.hash.includes('group-1-runs&') && location.hash.includes('row=sfao')")
    page.reload()
    assert names(page) == ["sgd", "sfao"]
    assert page.locator("#group-1-runs").bounding_box()["y"] < WIDE["height"]
    page.get_by_role("button", name="Show everything").click()
    assert names(page) == everything
    assert page.evaluate("location.hash") == "#group-1-runs"


def test_layers_are_filtered_too(page):
    panels = page.locator(".panel[data-layer]:visible")
    layers = panels.evaluate_all("all => [...new Set(all.map(one => one.dataset.layer))]")
    assert len(layers) > 1
    choose(page, layers[0])
    assert panels.evaluate_all("all => [...new Set(all.map(one => one.dataset.layer))]") == layers[:1]
    assert page.locator(".panel[data-row='sgd']:visible").count() > 0  # what is of no layer stays


def test_a_damaged_address_filters_nothing_and_complains_of_nothing(context, address):
    page, errors = context.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{address}#row=nobody&%E0%A4%A=1&=&seed")
    assert errors == []
    assert page.locator("table.sortable").first.locator("tbody tr:visible").count() == len(names(page)) > 3


def test_without_javascript_nothing_is_filtered_and_no_tool_is_offered(browser, address):
    context = browser.new_context(java_script_enabled=False, viewport=WIDE)
    page = context.new_page()
    page.goto(f"{address}#row=sgd")
    assert len(names(page)) > 3
    assert page.locator("#filter:visible, .figures-hint:visible, .download").count() == 0
    assert page.locator("nav a:visible").count() > 5
    context.close()


# -- Values ------------------------------------------------------------------------------------------------


def test_the_value_of_a_place_shows_under_the_pointer_and_by_the_keyboard(page):
    panel = page.locator(".panel[data-row='sgd'][data-marks]").first
    marks = [mark[4] for mark in json.loads(panel.get_attribute("data-marks"))]
    tip = page.locator("#value")
    assert tip.is_hidden()
    panel.scroll_into_view_if_needed()
    x, y = panel.evaluate(
        """panel => {
          const [x, y] = JSON.parse(panel.dataset.marks)[1];
          const at = new DOMPoint(x, y).matrixTransform(panel.querySelector("svg").getScreenCTM());
          return [at.x, at.y];
        }"""
    )
    page.mouse.move(x + 3, y - 2)
    expect(tip).to_have_text(marks[1])
    page.mouse.move(2, 2)
    expect(tip).to_be_hidden()
    # The first is shown with the focus, the others by the arrows; it is told aloud as well.
    page.keyboard.press("Tab")
    panel.focus()
    expect(tip).to_have_text(marks[0])
    page.keyboard.press("ArrowDown")
    expect(tip).to_have_text(marks[2])  # two tasks: the cell below the first
    page.keyboard.press("ArrowRight")
    expect(tip).to_have_text(marks[3])
    assert page.locator("p.unseen[role=status]").inner_text() == marks[3]
    box = tip.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= WIDE["width"]
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_every_panel_with_marks_has_them_inside_its_picture(opened):
    outside = opened.locator(".panel[data-marks]").evaluate_all(
        """all => all.flatMap(panel => {
          const box = panel.querySelector("svg").viewBox.baseVal;
          return JSON.parse(panel.dataset.marks).filter(([x, y]) =>
            x < box.x || y < box.y || x > box.x + box.width || y > box.y + box.height);
        })"""
    )
    assert outside == []
    assert opened.locator(".panel[data-marks]").count() >= 10


# -- Download ----------------------------------------------------------------------------------------------


def download(page, number=0):
    with page.expect_download() as started:
        page.get_by_role("button", name="Download CSV").nth(number).click()
    with open(started.value.path(), encoding="utf-8-sig", newline="") as file:
        return started.value.suggested_filename, list(csv.reader(io.StringIO(file.read(), newline="")))


def test_a_table_is_taken_along_with_all_digits_as_it_is_shown(page):
    assert page.get_by_role("button", name="Download CSV").count() == page.locator("table").count()
    choose(page, "sfao")
    choose(page, "sgd")
    results(page).get_by_role("button", name="accuracy").click()
    file, (heading, *rows) = download(page)
    assert file == "group-1-results.csv"
    assert [row[0] for row in rows] == names(page)
    assert {len(row) for row in rows} == {len(heading)}
    cell = results(page).locator("tbody tr:visible").first.locator("td").nth(1)
    assert rows[0][heading.index("accuracy")] == cell.get_attribute("data-value")
    assert rows[0][heading.index("accuracy, as shown")] == cell.inner_text()


def test_no_cell_of_a_download_is_a_formula(page):
    bad = ["=1+1", "+1", "-1", "@SUM(A1)", '=HYPERLINK("http://x","y")', 'a "quoted", name\nof two lines']
    page.evaluate(
        """bad => document.querySelectorAll("table.dense .name").forEach((name, at) => {
          if (at < 2 * bad.length) name.textContent = bad[at % bad.length];
        })""",
        bad,
    )
    _, (_, *rows) = download(page, 1)
    found = [cell for row in rows for cell in row]
    assert not [cell for cell in found if cell[:1] in "=+@" and cell]
    assert {f"'{text}" for text in bad[:5]} <= set(found)
    assert all(float(cell) <= 0 for cell in found if cell.startswith("-"))  # numbers stay numbers


# -- Narrow ------------------------------------------------------------------------------------------------


def test_names_of_any_length_and_script_stay_in_their_places(tab, hostile_address):
    for size in (WIDE, PHONE):
        tab.set_viewport_size(size)
        tab.goto(hostile_address)
        check_names(tab, size)


def check_names(page, size):
    assert page.evaluate("document.documentElement.scrollWidth") == size["width"]
    shown = page.locator("body").inner_text()
    assert all(name in shown.replace("\n", "") for name in FOREIGN), size
    # No text of a panel reaches into the one beside it.
    crossing = page.locator(".panels").evaluate_all(
        """all => all.flatMap(panels => [...panels.children].flatMap(panel => {
          const own = panel.getBoundingClientRect();
          return [...panel.querySelectorAll("text")].filter(text => {
            const box = text.getBoundingClientRect();
            return box.right > own.right + 14 || box.left < own.left - 14;
          }).map(text => text.textContent);
        }))"""
    )
    assert crossing == [], size
    # Nor does one cell of a table into the next.
    overlapping = page.locator("table tr").evaluate_all(
        """all => all.filter(row => [...row.cells].some((cell, at) => at &&
          cell.getBoundingClientRect().left < row.cells[at - 1].getBoundingClientRect().right - 1)).length"""
    )
    assert overlapping == 0, size


def test_on_a_phone_figures_fit_and_what_is_wider_says_so(page):
    page.set_viewport_size(PHONE)
    wide = page.locator("figure svg:visible").evaluate_all(
        "all => all.filter(svg => !svg.closest('.scroll') && svg.getBoundingClientRect().right > innerWidth).length"
    )
    assert wide == 0
    expect(page.locator(".hint").first).to_be_visible()
    hints = page.locator(".scroll").evaluate_all(
        "all => all.every(one => one.previousElementSibling.hidden === (one.scrollWidth <= one.clientWidth))"
    )
    assert hints
    letters = page.locator("main :is(p, td, th, li, text):visible").evaluate_all(
        """all => Math.min(...all.filter(one => one.textContent.trim()).map(one => {
          const scale = one.ownerSVGElement ? one.ownerSVGElement.getScreenCTM().a : 1;
          return scale * parseFloat(getComputedStyle(one).fontSize);
        }))"""
    )
    assert letters >= 8.5
