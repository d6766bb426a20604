"""A real Chromium, where the machine has one: no browser is ever downloaded."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.reports.real_runs import hostile_runs, report, share_comparison

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
def address(browser: Browser, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of the report, as a file."""
    return report(folder, tmp_path_factory.mktemp("report")).as_uri()


@pytest.fixture(scope="session")
def hostile_address(browser: Browser, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    runs = hostile_runs(folder / "sfao-0", tmp_path_factory.mktemp("hostile"))
    return report(runs, tmp_path_factory.mktemp("hostile-report")).as_uri()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    yield made
    made.close()


@pytest.fixture
def page(context: BrowserContext, address: str) -> Page:
    opened = context.new_page()
    opened.goto(address)
    return opened
