"""The page of a run in a browser, while the run goes on."""

import json
import re
from math import inf

import pytest
from playwright.sync_api import expect

from sfao.lab.live import server
from sfao.lab.live.server import serve_run
from sfao.lab.run.run_log import STEPS
from tests.browser.test_report_page import background, violations, watched
from tests.lab.live.held_run import PATIENCE, held_run
from tests.lab.report.real_runs import HOSTILE

PHONE, WIDE = {"width": 375, "height": 740}, {"width": 1280, "height": 900}
expect.set_options(timeout=1000 * PATIENCE)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(server, "BETWEEN", 0.2)


def test_a_run_is_watched_to_its_end(context, tmp_path):
    page, complaints, requests = watched(context)
    with held_run(tmp_path / "run", first=40) as held:
        page.goto(held.address)
        expect(page.locator("h1")).to_have_text("sfao on split-mnist-5k, seed 0")
        expect(page.locator("#steps")).to_have_text(re.compile("^40 of 128 steps"))
        expect(page.locator("#seen")).to_have_text(re.compile("^Steps 21 to 40: task 1, epoch 3, loss .*latest"))
        expect(page.locator("#layers .numbers").first).to_have_text(re.compile("^accept 100\N{NO-BREAK SPACE}%"))
        expect(page.locator("#matrix")).to_be_hidden()
        held.go_to(100)
        expect(page.locator("#place")).to_have_text("Task 2 of 2, epoch 3 of 4")
        expect(page.locator("#last-step")).to_have_text("step 100")
        expect(page.locator("#layers .numbers").first).to_have_text(re.compile("project 100.*kept 0.*cosine 0"))
        expect(page.locator("#matrix tbody tr")).to_have_count(1)
        check_looks(page)
        check_keyboard(page)
        check_pause(page, held)
        held.go_to(inf)
        expect(page.locator("#headline")).to_have_text("The run is done")
    assert page.locator("#command").inner_text() == f"sfao report {tmp_path / 'run'}"
    assert page.locator("#matrix td").all_inner_texts() == [
        f"{accuracy:.3f}" for row in held.record.accuracy_matrix for accuracy in row
    ]
    assert page.title() == "done \N{MIDDLE DOT} sfao on split-mnist-5k, seed 0"
    page.wait_for_timeout(1500)  # longer than a browser waits before it asks again
    assert requests == [f"{held.address}/", f"{held.address}/events"]
    assert page.locator("#lost").is_hidden()
    page.emulate_media(color_scheme="dark")
    assert violations(page) == []
    assert complaints == []


def check_looks(page):
    """Nothing is wrong for axe or runs off a phone, light or dark."""
    light = background(page)
    for scheme, size in (("dark", PHONE), ("light", WIDE)):
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=scheme)
        assert (background(page) == light) == (scheme == "light")
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") == size["width"]
    page.get_by_role("switch", name="Dark").click()
    assert background(page) != light
    page.get_by_role("switch", name="Dark").click()


def check_keyboard(page):
    """Arrows on the slider look back, at all charts at once."""
    slider = page.get_by_role("slider", name="Look at")
    slider.focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    expect(page.locator("#seen")).to_have_text(re.compile("^Steps 21 to 40: task 1, epoch 3, loss [0-9.]+$"))
    assert page.locator("#seen").inner_text() == slider.get_attribute("aria-valuetext")
    expect(page.locator("#layers .numbers").first).to_have_text(re.compile("^accept 100"))
    assert page.locator("#layers .cursor").first.get_attribute("d")
    page.get_by_role("button", name="Latest").press("Enter")
    expect(page.locator("#seen")).to_have_text(re.compile("latest"))
    page.locator("#loss").hover(position={"x": 5, "y": 5})
    expect(page.locator("#seen")).to_have_text(re.compile("^Steps 1 to 20:"))
    page.mouse.move(0, 0)
    expect(page.locator("#seen")).to_have_text(re.compile("latest"))


def check_pause(page, held):
    page.get_by_role("button", name="Pause").click()
    held.go_to(121)
    page.wait_for_timeout(600)
    assert page.locator("#last-step").inner_text() == "step 100"
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#last-step")).to_have_text("step 120")


def test_without_a_gate_there_are_no_panels_of_one(context, tmp_path):
    page, complaints, _ = watched(context)
    with held_run(tmp_path / "run", "sgd", first=60) as held:
        page.goto(held.address)
        expect(page.locator("#last-step")).to_have_text("step 60")
        expect(page.locator("#loss .loss")).to_have_attribute("d", re.compile("^M.*L.*L"))
        assert page.locator(".gated:visible, .layers li").count() == 0
        assert "gate" not in page.locator("main").inner_text()
    assert complaints == []


def hang_up(seconds):
    raise ConnectionResetError


def write_steps(folder, names):
    """Telemetry of many steps of layers with these names."""
    lines = []
    for number in range(1, 400):
        counts = {"accept": 20 * min(number, 200), "project": 20 * max(0, number - 200), "discard": 0, "zero": 0}
        looks = {name: {"kept": 0.5, "drift": number / 100} for name in names}
        line = {"step": 20 * number, "task": number // 200, "epoch": 0, "loss": 1 / number}
        lines.append(json.dumps({**line, "decisions": dict.fromkeys(names, counts), "gate": looks}) + "\n")
    (folder / STEPS).write_text("".join(lines))


def test_many_layers_of_any_name_are_text_and_can_be_found_and_a_server_that_goes_is_told(context, tmp_path):
    names = [
        HOSTILE,
        "<img src=x onerror=alert(1)>",
        "שכבה",
        "層" * 80,
        "x" * 300,
        *(f"block.{n}.conv" for n in range(40)),
    ]
    write_steps(tmp_path, names)
    page, complaints, _ = watched(context)
    page.set_viewport_size(PHONE)
    said = []
    with serve_run(tmp_path, None, said.append) as live:
        live._announce()
        page.goto(said[0].split()[-1])
        expect(page.locator("#layers li")).to_have_count(len(names))
        assert page.locator("#layers .name").all_inner_texts()[:5] == names[:5]
        assert page.locator("script").count() == 1
        assert page.locator("main img").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
        page.get_by_label("in their name").fill("BLOCK.3")
        expect(page.locator("#layers li:visible")).to_have_count(11)
        assert page.locator("#found").inner_text() == f"11 of {len(names)} layers"
        assert violations(page) == []
        live.wait, live.end = hang_up, lambda ending: None  # as if the process had been killed: nobody is told
    expect(page.locator("#lost")).to_be_visible()
    assert "does not answer" in page.locator("#lost").inner_text()
    assert page.locator("#layers li:visible").count() == 11
    assert all("ERR_CONNECTION" in text or "Failed to load" in text for text in complaints)
    with serve_run(tmp_path, int(said[0].rpartition(":")[2]), said.append):
        page.get_by_role("button", name="Ask again").click()
        expect(page.locator("#lost")).to_be_hidden()
