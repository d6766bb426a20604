"""The report as a reader has it: opened from a file, in a browser."""

import re
from itertools import pairwise

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.conftest import PHONE, WIDE
from tests.lab.report.real_runs import FOREIGN, HOSTILE


def watched(context):
    """A page that notes what it complains of and what it asks for."""
    page, complaints, requests = context.new_page(), [], []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: requests.append(request.url))
    return page, complaints, requests


def background(page):
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def violations(page):
    found = Axe().run(page).response["violations"]
    return [(violation["id"], node["html"]) for violation in found for node in violation["nodes"]]


def open_details(page):
    page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")


def test_it_opens_from_a_file_without_a_complaint_and_asks_for_nothing_else(context, address):
    page, complaints, requests = watched(context)
    page.goto(address, wait_until="networkidle")
    assert complaints == []
    assert [url for url in requests if not url.startswith("data:")] == [address]
    titles = page.locator("section.group").first.locator("figure :is(h3, h4)").all_inner_texts()
    assert titles == [
        "Accuracy against cost",
        "Accuracy on every task after every task",
        "Forgetting while tasks are learned",
        "Decisions over time",
        "Cosines that the gate decided by",
    ]
    assert page.locator("nav[aria-label=Contents] > ol > li > a").count() == 2


def test_a_script_or_style_that_is_not_the_page_s_own_does_not_run(context, address):
    page, complaints, _ = watched(context)
    page.goto(address)
    page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "window.broken = true";
          document.body.append(script);
          document.body.setAttribute("style", "display: none");
        }"""
    )
    assert page.evaluate("window.broken") is None
    assert page.locator("h1").is_visible()
    assert len(complaints) == 2


def test_without_javascript_there_are_the_headline_and_the_tables(browser, address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator("button:visible, #filter:visible").count() == 0
    assert page.locator("h1, table").all_inner_texts()
    assert page.locator("table").count() == 2
    context.close()


def test_the_switch_turns_the_page_dark_and_is_remembered(page):
    switch = page.get_by_role("switch", name="Dark")
    light = background(page)
    switch.click()
    dark = background(page)
    assert dark != light
    page.reload()
    assert background(page) == dark
    assert switch.get_attribute("aria-checked") == "true"
    switch.click()
    page.reload()
    assert background(page) == light
    page.emulate_media(color_scheme="dark")  # the switch is where the system was: the page follows it again
    assert background(page) == dark


def test_without_storage_the_switch_works_and_nothing_is_thrown(context, address):
    page, complaints, _ = watched(context)
    page.add_init_script(
        "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('no', 'SecurityError') }})"
    )
    page.goto(address)
    light = background(page)
    page.get_by_role("switch", name="Dark").click()
    assert background(page) != light
    assert complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_of_charts_is_seen_on_the_page(page, scheme):
    page.emulate_media(color_scheme=scheme)
    fill = page.locator("figure svg text").first.evaluate("text => getComputedStyle(text).fill")
    ink, paper = (sum(map(int, re.findall(r"\d+", color)[:3])) for color in (fill, background(page)))
    assert abs(ink - paper) > 400


def test_markup_in_what_runs_say_is_shown_and_not_obeyed(context, hostile_address):
    page, complaints, requests = watched(context)
    page.goto(hostile_address, wait_until="networkidle")
    open_details(page)
    for mark in page.locator("[data-value]").all()[:20]:
        mark.hover(force=True)
    assert complaints == []
    assert [url for url in requests if not url.startswith("data:")] == [hostile_address]
    assert page.locator("script:not([type='application/json'])").count() == 1
    assert page.locator("img, [onerror], [onmouseover]").count() == 0
    names = page.locator("table.dense tbody th").all_inner_texts()
    assert {HOSTILE, "<img src=x onerror=alert(1)>", "' onmouseover=alert(1) '"} <= set(names)
    text = page.locator("body").inner_text()
    assert "{{ 7 * 7 }}" in text
    assert f'"{HOSTILE}&' in text


def test_names_of_any_script_keep_their_place_and_their_own_direction(context, hostile_address):
    page = context.new_page()
    page.goto(hostile_address)
    for name in FOREIGN:
        heading = page.locator("table.sortable:not(.dense) tbody th", has_text=name)
        assert heading.evaluate("cell => getComputedStyle(cell).unicodeBidi") == "isolate"
        box, table = heading.bounding_box(), heading.locator("xpath=ancestor::table").bounding_box()
        assert box["width"] < 300 < table["width"]


def test_a_phone_does_not_scroll_sideways(context, address, hostile_address):
    page = context.new_page()
    page.set_viewport_size(PHONE)
    for which in (address, hostile_address):
        page.goto(which)
        open_details(page)
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"], which
        is_wide = "table => table.parentElement.scrollWidth > table.parentElement.clientWidth"
        assert page.locator("table.sortable").first.evaluate(is_wide), which


def test_axe_finds_nothing(page):
    open_details(page)
    page.locator("table.sortable").first.get_by_role("button", name="accuracy").click()
    for size in (WIDE, PHONE):
        page.set_viewport_size(size)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert violations(page) == [], (size, scheme)
    page.evaluate("document.documentElement.removeAttribute('lang')")
    assert [name for name, _ in violations(page)] == ["html-has-lang"]  # axe does find what is wrong


def test_the_skip_link_is_first_and_headings_come_in_order(page):
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "Skip to the results"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    levels = [int(name[1]) for name in page.locator("h1, h2, h3, h4").evaluate_all("all => all.map(h => h.tagName)")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_the_keyboard_stops_only_at_what_scrolls(page):
    stops = "all => all.every(one => one.tabIndex === (one.scrollWidth > one.clientWidth ? 0 : -1))"
    for size, expected in ((PHONE, 0), ({"width": 1600, "height": 900}, -1)):
        page.set_viewport_size(size)
        expect(page.locator(".scroll").first).to_have_js_property("tabIndex", expected)
        assert page.locator(".scroll:visible").evaluate_all(stops)


def test_in_print_there_are_no_controls_and_figures_stay_whole(page):
    page.get_by_role("switch", name="Dark").click()
    page.emulate_media(media="print")
    assert page.locator("nav:visible, form:visible, .download:visible, details:visible, #theme:visible").count() == 0
    assert background(page) == "rgb(255, 255, 255)"
    # Chromium repeats the head of a table on every sheet only where it holds no button box.
    displays = page.locator("thead button").evaluate_all("all => all.map(one => getComputedStyle(one).display)")
    assert set(displays) == {"contents"}
    inside = page.locator("figure").evaluate_all("all => all.map(one => getComputedStyle(one).breakInside)")
    assert set(inside) == {"avoid"}
    assert len(page.pdf()) > 10_000
