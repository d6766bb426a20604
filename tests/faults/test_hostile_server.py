"""Downloads from servers that lie, stall, and never end: the good mirror's file comes, or an error of a line or two."""

import hashlib
import os
import random
import time
import urllib.error
import urllib.request

import pytest

from sfao.lab.data.errors import DownloadError
from sfao.lab.data.fetching import download as module
from sfao.lab.data.fetching import request
from sfao.lab.data.fetching.download import download, get_partial_path
from sfao.lab.data.sets import DATASETS
from tests.faults.hostile_server import being_hostile, list_behaviours
from tests.faults.tally import in_soak
from tests.lab.data.fetching.server import serving

CONTENT = os.urandom(100_000)
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
BEHAVIOURS = list_behaviours(CONTENT)
#: More than buffers of sockets hold, far less than a server without end would send.
MOST_SENT = 64 << 20
#: No download of the small file waits longer, on however slow a machine.
LONGEST_SECONDS = 60


#: Servers that are waited for.
SLOW = {"headers a letter at a time", "a body a byte at a time", "silence", "silence in the middle"}


@pytest.fixture(autouse=True)
def _in_haste(monkeypatch):
    for name, value in {"PAUSE_SECONDS": 0, "ATTEMPTS": 2, "PATIENCE_SECONDS": 0.2}.items():
        monkeypatch.setattr(module, name, value)


def be_patient(monkeypatch, name):
    """Wait half a second for servers that are slow on purpose, and long for the others, on however slow a machine."""
    seconds = 0.5 if name in SLOW else 30.0
    monkeypatch.setattr(request, "TIMEOUT_SECONDS", seconds)
    monkeypatch.setattr(request, "HEADERS_SECONDS", seconds)


def leave_part(target, length):
    if length:
        get_partial_path(target).write_bytes(CONTENT[:length])


def check_alone(behave, target, length):
    leave_part(target, length)
    began = time.monotonic()
    with being_hostile(behave) as bad:
        said = ""
        try:
            download([bad.url + "file"], target, DIGEST, size=len(CONTENT))
        except DownloadError as error:
            said = str(error)
    assert target.read_bytes() == CONTENT if not said else not target.exists(), "a wrong file was taken"
    assert len(said.splitlines()) <= 2, f"{len(said.splitlines())} lines"
    assert said.isprintable(), f"not printable: {said!r}"
    assert len(said) < 1000, f"{len(said)} letters"
    assert {path.name for path in target.parent.iterdir()} <= {"file", "file.part"}, "something is left behind"
    part = get_partial_path(target)
    assert not part.exists() or part.stat().st_size <= len(CONTENT), "more was written than the file has"
    assert bad.sent < MOST_SENT, f"{bad.sent} bytes were taken"
    assert time.monotonic() - began < LONGEST_SECONDS, "it waited too long"


def check_with_good_mirror(behave, target, length):
    leave_part(target, length)
    with being_hostile(behave) as bad, serving(files={"file": CONTENT}) as good:
        try:
            # Several times: on a slow machine the good one may be late too.
            download([bad.url + "file", *[good.url + "file"] * 8], target, DIGEST, size=len(CONTENT))
        except DownloadError as error:
            raise AssertionError(f"the good mirror was not taken: {error}") from error
    assert target.read_bytes() == CONTENT, "a wrong file was taken"
    assert [path.name for path in target.parent.iterdir()] == ["file"], "something is left behind"


def test_a_hostile_server_costs_an_error_or_nothing(attack, tmp_path, monkeypatch):
    alone = attack("downloads", "a server that lies, stalls or never ends, and no other mirror")
    mirrored = attack("downloads", "the same, and a good mirror after it")
    dice = random.Random(0)
    for turn in range(in_soak(1, 20)):
        for number, (name, behave) in enumerate(BEHAVIOURS.items()):
            be_patient(monkeypatch, name)
            length = dice.choice([0, 1, 50_000, len(CONTENT) - 1])
            for which, (counted, check) in enumerate([(alone, check_alone), (mirrored, check_with_good_mirror)]):
                target = tmp_path / f"{turn}-{number}-{which}" / "file"
                target.parent.mkdir()
                counted.try_it(
                    f"{name}, {length} bytes begun", lambda c=check, b=behave, t=target, n=length: c(b, t, n)
                )


def test_a_redirect_from_https_leads_to_https_alone(attack):
    redirects = attack("downloads", "a redirect from https to another protocol")
    handler, origin = request._Redirects(), urllib.request.Request("https://mirror.invalid/file")

    def follow(place):
        try:
            handler.redirect_request(origin, None, 302, "Found", {}, place)
        except urllib.error.URLError:
            return
        raise AssertionError("it was followed")

    for place in ("http://mirror.invalid/file", "ftp://mirror.invalid/file", "file:///etc/passwd", "/etc/passwd"):
        redirects.try_it(place, lambda place=place: follow(place))
    assert handler.redirect_request(origin, None, 302, "Found", {}, "https://other.invalid/file") is not None


def test_every_mirror_speaks_https():
    mirrors = [
        mirror
        for description in DATASETS.values()
        if description.publication
        for item in description.publication.downloads
        for mirror in item.mirrors
    ]
    assert mirrors
    assert all(mirror.startswith("https://") for mirror in mirrors)
