"""Downloads from a real server: whole, cut, resumed, wrong."""

import hashlib
import os
import socket

import pytest

from sfao.lab.data.errors import DownloadError
from sfao.lab.data.fetching import download as module
from tests.lab.data.fetching.server import serving

CONTENT = os.urandom(1 << 20)
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
MD5 = f"md5:{hashlib.md5(CONTENT).hexdigest()}"


def download(urls, target, digest, **options):
    module.download(urls, target, digest, size=len(CONTENT), **options)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0)


@pytest.fixture
def target(tmp_path):
    return tmp_path / "file"


@pytest.fixture
def part(tmp_path):
    return tmp_path / "file.part"


def names(target):
    return sorted(path.name for path in target.parent.iterdir())


@pytest.mark.parametrize("digest", [SHA256, MD5], ids=["sha256", "md5"])
def test_a_file_comes_whole_and_leaves_no_part(target, digest):
    with serving(files={"file": CONTENT}) as site:
        download([site.url + "file"], target, digest)
    assert target.read_bytes() == CONTENT
    assert names(target) == ["file"]
    assert site.requests == [None]


def test_a_connection_that_is_cut_goes_on_where_it_stopped(target):
    with serving(files={"file": CONTENT}, cuts=2, cut_after=300_000) as site:
        download([site.url + "file"], target, SHA256)
    assert target.read_bytes() == CONTENT
    assert site.requests == [None, "bytes=300000-", "bytes=600000-"]


def test_what_came_is_kept_for_the_next_call(target, part):
    with serving(files={"file": CONTENT}, cuts=99, cut_after=100_000) as site:
        with pytest.raises(DownloadError, match="broke off 4 times"):
            download([site.url + "file"], target, SHA256)
        assert part.read_bytes() == CONTENT[:400_000]
        assert not target.exists()
        site.cuts = 0
        download([site.url + "file"], target, SHA256)
    assert site.requests[-1] == "bytes=400000-"
    assert target.read_bytes() == CONTENT


def test_a_cut_without_a_length_is_noticed_by_the_known_size(target):
    with serving(files={"file": CONTENT}, says_length=False, cuts=1, cut_after=1000) as site:
        download([site.url + "file"], target, SHA256)
    assert site.requests == [None, "bytes=1000-"]
    assert target.read_bytes() == CONTENT


def test_a_server_that_ignores_ranges_gives_the_file_from_its_start(target, part):
    part.write_bytes(CONTENT[:1000])
    with serving(files={"file": CONTENT}, ranges=False) as site:
        download([site.url + "file"], target, SHA256)
    assert site.requests == ["bytes=1000-"]
    assert target.read_bytes() == CONTENT


def test_a_server_that_answers_with_another_range_is_not_believed(target, part):
    part.write_bytes(CONTENT[:1000])
    with serving(files={"file": CONTENT}, lie=5) as site:
        download([site.url + "file"], target, SHA256)
    assert site.requests == ["bytes=1000-", None]
    assert target.read_bytes() == CONTENT


def test_a_part_that_is_whole_already_only_needs_its_name(target, part):
    part.write_bytes(CONTENT)
    with serving(files={"file": CONTENT}) as site:
        download([site.url + "file"], target, SHA256)
    assert site.requests == []
    assert names(target) == ["file"]


@pytest.mark.parametrize("old", [b"of another file", CONTENT + b"more", b""])
def test_a_part_of_something_else_is_dropped(target, part, old):
    part.write_bytes(old)
    with serving(files={"file": CONTENT}) as site:
        download([site.url + "file"], target, SHA256)
    assert target.read_bytes() == CONTENT
    assert names(target) == ["file"]


def test_wrong_bytes_never_replace_anything(target):
    target.write_bytes(b"what was here")
    with (
        serving(files={"file": bytes(len(CONTENT))}) as site,
        pytest.raises(DownloadError, match=f"{site.url}file must give a file of {SHA256}, got sha256:"),
    ):
        download([site.url + "file"], target, SHA256)
    assert target.read_bytes() == b"what was here"
    assert names(target) == ["file"]


def test_the_next_mirror_is_tried_and_takes_up_the_part(target):
    with serving(files={"file": CONTENT}, cuts=99, cut_after=1000) as bad, serving(files={"file": CONTENT}) as good:
        download([bad.url + "file", good.url + "file"], target, SHA256)
    assert good.requests == ["bytes=4000-"]
    assert target.read_bytes() == CONTENT


def test_when_no_mirror_has_it_each_is_named_with_its_reason(target):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # not listening: connections are refused
        dead = f"http://127.0.0.1:{free.getsockname()[1]}/file"
        with (
            serving() as site,
            pytest.raises(DownloadError, match=rf"{site.url}file answered 404 .*; {dead} did not answer") as caught,
        ):
            download([site.url + "file", dead], target, SHA256)
    assert len(str(caught.value).splitlines()) == 1
    assert names(target) == []


@pytest.mark.parametrize("says_length", [True, False])
def test_progress_starts_at_what_is_there_and_ends_at_the_total(target, part, says_length):
    told = []
    part.write_bytes(CONTENT[:1000])
    with serving(files={"file": CONTENT}, says_length=says_length) as site:
        download([site.url + "file"], target, SHA256, progress=lambda *progress: told.append(progress))
    assert told[0] == ("file", 1000, len(CONTENT))
    assert told[-1] == ("file", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
