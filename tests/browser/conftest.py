"""A real Chromium, where the machine has one: no browser is ever downloaded."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.lab.report.real_runs import share_comparison, share_hostile_report, share_report

NAMES = ("chromium", "chromium-browser", "google-chrome")
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}


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
    """The address of the report, a file."""
    return share_report(tmp_path_factory).as_uri()


@pytest.fixture(scope="session")
def hostile_address(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> str:
    return share_hostile_report(tmp_path_factory).as_uri()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport=WIDE, color_scheme="light", accept_downloads=True)
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext, address: str) -> Page:
    """The report as it is when it is opened."""
    opened = context.new_page()
    opened.goto(address)
    return opened
