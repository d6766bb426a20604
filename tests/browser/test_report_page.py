"""The report as a reader has it: opened from a file, in a browser."""

from itertools import pairwise

from axe_playwright_python.sync_playwright import Axe

from tests.browser.conftest import PHONE, WIDE
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
