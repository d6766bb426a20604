"""The documentation site: it builds without a warning, its links lead somewhere, and it needs no network."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]

#: What a browser fetches by itself, by the attribute that says from where.
FETCHED = {"img": "src", "script": "src", "source": "src", "iframe": "src", "link": "href"}


@dataclass
class Page(HTMLParser):
    """What a page links to, what it fetches, and the places in it that can be linked to."""

    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if FETCHED.get(tag) in given and given.get("rel") not in ("canonical", "next", "prev"):
            self.fetched.append(given[FETCHED[tag]])


def read(file: Path) -> Page:
    page = Page()
    page.feed(file.read_text())
    return page


def broken(site: Path) -> list[str]:
    """The links and files of all pages that lead nowhere, and the files that are fetched from elsewhere."""
    pages = {file.resolve(): read(file) for file in site.rglob("*.html") if file.name != "404.html"}
    wrong = []
    for file, page in pages.items():
        for link in (*page.links, *page.fetched):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.fetched:
                    wrong.append(f"{file.name} fetches {link}")
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                wrong.append(f"{file.name}: {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                wrong.append(f"{file.name}: {link} has no such place")
    return wrong


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


def test_every_link_leads_somewhere_and_nothing_comes_from_elsewhere(site):
    assert broken(site) == []


def test_the_reference_has_the_public_names_with_their_members(site):
    page = read(site / "reference" / "optimizer.html")
    names = {"SFAO", "SFAO.rebind", "Gate.risk", "Gate.attach", "Gate.consolidate", "Gate.counts"}
    names |= {"DriftBound", "DriftBound.attach", "DriftBound.consolidate", "DriftBound.telemetry"}
    names |= {"layer_groups", "Decision", "Decision.PROJECT"}
    assert {f"sfao.{name}" for name in names} <= page.anchors
    text = (site / "reference" / "optimizer.html").read_text()
    assert ":meth:" not in text
    assert ":class:" not in text
