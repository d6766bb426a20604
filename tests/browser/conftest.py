"""A real Chromium, where the machine has one: no browser is ever downloaded."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.browser.tabs import WIDE, Tab
from tests.lab.report.real_runs import share_comparison, share_hostile_report, share_report

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"the page is tested in a browser, and none of {', '.join(NAMES)} is installed")
    with sync_playwright() as playwright:
        # The page is ours, and containers seldom let a browser make its sandbox.
        launched = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return share_comparison(tmp_path_factory)


@pytest.fixture(scope="session")
def address(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of the report, as a file."""
    return share_report(tmp_path_factory).as_uri()


@pytest.fixture(scope="session")
def hostile_address(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> str:
    return share_hostile_report(tmp_path_factory).as_uri()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport=WIDE, color_scheme="light")
    yield made
    made.close()


@pytest.fixture(scope="session")
def tabs(browser: Browser) -> Iterator[list[Tab]]:
    """Two, for a page and one to compare it with: to start a tab takes longer than to load a report."""
    contexts = [browser.new_context(viewport=WIDE, color_scheme="light") for _ in range(2)]
    yield [Tab(context.new_page()) for context in contexts]
    for context in contexts:
        context.close()


@pytest.fixture
def opened(tabs: list[Tab], address: str) -> Page:
    """The report, for tests that leave it as it is: several in a row share it."""
    return tabs[0].show(address)


@pytest.fixture
def page(tabs: list[Tab], address: str) -> Iterator[Page]:
    """The report, for tests that change it, its size or its media: the next has it as it was loaded."""
    yield tabs[0].show(address)
    tabs[0].drop()


@pytest.fixture
def tab(tabs: list[Tab]) -> Iterator[Page]:
    """An empty one, for tests that load a page themselves."""
    tabs[0].drop()
    yield tabs[0].page
    tabs[0].drop()


@pytest.fixture
def printed(opened: Page) -> Iterator[Page]:
    """The report in print, for tests that leave it as it is."""
    opened.emulate_media(media="print")
    yield opened
    opened.emulate_media(media="null")
