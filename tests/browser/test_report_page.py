"""The report as a reader has it: opened from a file, in a browser."""

import re
from itertools import pairwise

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.tables import results
from tests.browser.tabs import PHONE, WIDE
from tests.lab.report.real_runs import HOSTILE


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


# -- Opening -----------------------------------------------------------------------------------------------


def test_it_opens_from_a_file_without_a_complaint_and_asks_for_nothing_else(context, address):
    page, complaints, requests = watched(context)
    page.goto(address, wait_until="networkidle")
    assert complaints == []
    assert [url for url in requests if not url.startswith("data:")] == [address]
    assert page.locator("figure svg").count() >= 6
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


def test_without_javascript_everything_but_sorting_and_the_switch_is_there(browser, address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.locator("button:visible").count() == 0
    page.locator("summary").last.click()
    assert page.locator("details pre").last.is_visible()
    context.close()


def test_figures_have_ink_that_is_seen_on_the_paper(tab, address):
    papers = []
    for scheme in ("light", "dark"):
        tab.emulate_media(color_scheme=scheme)
        tab.goto(address)
        fill = tab.locator("figure svg text").first.evaluate("text => getComputedStyle(text).fill")
        assert fill == tab.evaluate("getComputedStyle(document.querySelector('figure svg')).color"), scheme
        ink, paper = (sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (fill, background(tab)))
        assert abs(ink - paper) > 400, scheme
        papers.append(paper)
    assert papers[0] > papers[1]


# -- Light and dark ----------------------------------------------------------------------------------------


def test_the_switch_turns_the_page_dark_and_is_remembered(page):
    switch = page.get_by_role("switch", name="Dark")
    light = background(page)
    assert switch.get_attribute("aria-checked") == "false"
    switch.click()
    dark = background(page)
    assert dark != light
    page.reload()
    assert background(page) == dark
    assert switch.get_attribute("aria-checked") == "true"
    switch.click()
    page.reload()
    assert background(page) == light


def test_the_page_follows_the_system_until_the_switch_is_used(page):
    light = background(page)
    page.emulate_media(color_scheme="dark")
    dark = background(page)
    assert dark != light
    switch = page.get_by_role("switch", name="Dark")
    assert switch.get_attribute("aria-checked") == "true"
    switch.click()
    assert background(page) == light


def test_without_storage_the_switch_works_and_nothing_is_thrown(context, address):
    page, complaints, _ = watched(context)
    page.add_init_script(
        "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('no', 'SecurityError') }})"
    )
    page.goto(address)
    light = background(page)
    page.get_by_role("switch", name="Dark").click()
    assert background(page) != light
    results(page).get_by_role("button", name="accuracy").click()
    assert results(page).locator("th[aria-sort]").count() == 1
    assert complaints == []


# -- What runs say is text ---------------------------------------------------------------------------------


def test_markup_in_what_runs_say_is_shown_and_not_obeyed(context, hostile_address):
    page, complaints, requests = watched(context)
    page.goto(hostile_address, wait_until="networkidle")
    page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
    for row in page.locator("table.sortable tbody th").all():
        row.hover()
    assert complaints == []
    assert [url for url in requests if not url.startswith("data:")] == [hostile_address]
    assert page.locator("script:not([type='application/json'])").count() == 1
    assert page.locator("img, [onerror], [onmouseover]").count() == 0
    names = page.locator("table.sortable tbody th").all_inner_texts()
    assert {HOSTILE, "<img src=x onerror=alert(1)>", "' onmouseover=alert(1) '"} <= set(names)
    text = page.locator("body").inner_text()
    assert "{{ 7 * 7 }}" in text
    assert f'"{HOSTILE}&' in text


# -- Narrow, printed, read aloud ---------------------------------------------------------------------------


def test_a_phone_does_not_scroll_sideways(tab, address, hostile_address):
    tab.set_viewport_size(PHONE)
    for which in (address, hostile_address):
        tab.goto(which)
        tab.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
        assert tab.evaluate("document.documentElement.scrollWidth") == PHONE["width"], which
        is_wide = "table => table.parentElement.scrollWidth > table.parentElement.clientWidth"
        assert results(tab).evaluate(is_wide), which


def test_axe_finds_nothing(page):
    page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
    results(page).get_by_role("button", name="accuracy").click()
    for size in (WIDE, PHONE):
        page.set_viewport_size(size)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert violations(page) == [], (size, scheme)


def test_axe_does_find_what_is_wrong(page):
    page.evaluate("document.documentElement.removeAttribute('lang')")
    assert [name for name, _ in violations(page)] == ["html-has-lang"]


def test_the_skip_link_is_first_and_leads_to_the_results(page):
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "Skip to the results"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_the_keyboard_stops_only_at_what_scrolls(page):
    stops = "region => region.tabIndex === (region.scrollWidth > region.clientWidth ? 0 : -1)"
    table = results(page).locator("..")
    for size, expected in ((PHONE, 0), ({"width": 1600, "height": 900}, -1)):
        page.set_viewport_size(size)
        expect(page.locator(".scroll").first).to_have_js_property("tabIndex", expected)
        assert table.evaluate(stops)
        assert page.locator(".scroll:visible").evaluate_all(f"all => all.every({stops})")


def test_headings_come_in_order(opened):
    levels = [int(name[1]) for name in opened.locator("h1, h2, h3, h4").evaluate_all("all => all.map(h => h.tagName)")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_in_print_settings_are_one_table_on_white_without_buttons(page):
    page.get_by_role("switch", name="Dark").click()
    page.emulate_media(media="print")
    assert page.locator("pre:visible, button:visible, nav:visible, form:visible, .hint:visible").count() == (
        page.locator("thead button:visible").count()
    )
    settings = page.locator("table.settings")
    assert settings.first.is_visible()
    assert settings.count() == 1  # the other group has one run
    assert "options.memory" in settings.first.inner_text()
    assert "epochs=1" in page.locator(".group > .codes").first.inner_text()
    assert page.locator("#theme").is_hidden()
    assert background(page) == "rgb(255, 255, 255)"


def test_in_print_a_long_name_stays_in_its_column(page):
    page.emulate_media(media="print")
    name = page.locator(".dense .name").first
    name.evaluate("one => one.textContent = 'long'.repeat(60)")
    assert name.evaluate("one => one.scrollWidth <= one.clientWidth")


def test_in_print_headings_come_again_on_every_sheet(printed):
    """Chromium repeats the head of a table only where it holds no button."""
    heads = printed.locator("thead:has(button)")
    assert heads.count() >= 2
    assert heads.evaluate_all("all => all.every(head => getComputedStyle(head).breakInside === 'avoid')")
    boxes = "all => all.every(button => getComputedStyle(button).display === 'contents')"
    assert printed.locator("thead button").evaluate_all(boxes)


def test_in_print_a_small_figure_is_on_one_sheet_and_a_heading_with_what_it_heads(printed):
    whole = "all => all.map(one => [one.querySelectorAll('.panel').length < 5, getComputedStyle(one).breakInside])"
    figures = printed.locator("figure").evaluate_all(whole)
    assert {small for small, _ in figures} >= {True}
    assert all((inside == "avoid") == small for small, inside in figures)
    after = "all => all.every(one => getComputedStyle(one).breakAfter === 'avoid')"
    assert printed.locator("h2, h3, h4, .axes").evaluate_all(after)


def test_in_print_a_badge_is_as_small_as_its_table(printed):
    sizes = "one => [one, one.parentElement].map(each => getComputedStyle(each).fontSize)"
    badge, cell = printed.locator(".dense .badge").first.evaluate(sizes)
    assert badge == cell


def test_less_motion_where_it_is_asked_for(page):
    moving = "getComputedStyle(document.getElementById('theme'), '::after').transitionDuration"
    assert page.evaluate(moving) == "0.15s"
    page.emulate_media(reduced_motion="reduce")
    assert page.evaluate(moving) == "0s"
