"""One request for the rest of a file, to a server whose every answer is doubted.

Redirects stay with https, answers must be of the length that the file has, and headers must come within a time.
"""

import re
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse, HTTPSConnection
from threading import Timer
from typing import IO
from urllib.parse import urlsplit

from sfao.lab.data.errors import DownloadError

#: Between two pieces of an answer.
TIMEOUT_SECONDS = 30.0
#: For all headers together: one letter at a time would never time out.
HEADERS_SECONDS = 60.0


class Cut(Exception):  # noqa: N818, a message to the caller, not an error of its own
    """The connection ended before the file did, or it is another file than was begun: worth another try."""

    def __init__(self, why: str, *, is_of_another_file: bool = False) -> None:
        super().__init__(why)
        self.is_of_another_file = is_of_another_file


@dataclass(frozen=True)
class Answer:
    """The bytes of a file from `start` on."""

    start: int
    response: HTTPResponse

    def read(self, most: int) -> bytes:
        """Return what has come, so many bytes at most, waiting only if there is nothing; empty at the end."""
        try:
            return self.response.read1(most)
        except (OSError, HTTPException, ValueError) as error:
            raise Cut(_clean(error)) from None


@contextmanager
def ask(url: str, have: int, size: int) -> Iterator[Answer]:
    """Request the bytes of a file of `size` from `have` on, and yield the answer, which may begin at 0 instead."""
    response = _open(url, have)
    with response:
        yield Answer(_check(url, response, have, size), response)


def _open(url: str, have: int) -> HTTPResponse:
    headers = {"User-Agent": "sfao", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        request = urllib.request.Request(url, headers=headers)
        response: HTTPResponse = _make_opener().open(request, timeout=TIMEOUT_SECONDS)
        return response
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and have:  # range not satisfiable: what is here is not of this file
                raise Cut("no such range", is_of_another_file=True) from None
            raise DownloadError(f"{url} answered {error.code} {_clean(error.reason)}") from None
    # A ValueError is an address or a number in a header that is none.
    except (OSError, HTTPException, ValueError) as error:
        raise DownloadError(f"{url} did not answer ({_clean(getattr(error, 'reason', error))})") from None


def _check(url: str, response: HTTPResponse, have: int, size: int) -> int:
    """Return where the answer begins; refuse one that is not of the rest of the file, or of all of it."""
    if response.status not in (200, 206):
        raise DownloadError(f"{url} answered {response.status} {_clean(response.reason)}")
    start = 0
    if response.status == 206:
        given = response.headers["Content-Range"] or ""
        found = re.fullmatch(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", given)
        start, rest = have, (str(have), str(size - 1))
        if found is None or found.groups()[:2] != rest or found[3] not in (str(size), "*"):
            raise Cut(f"asked for bytes from {have}, got {_clean(given)!r}", is_of_another_file=True)
    lengths = response.headers.get_all("Content-Length") or []
    if any(length.strip() != str(size - start) for length in lengths):
        raise DownloadError(f"{url} must give {size - start} bytes, got the length {_clean(lengths[0])!r}")
    return start


def _clean(said: object) -> str:
    """Return what a server said, short and printable: it is shown on a terminal."""
    text = " ".join(str(said).split()) or type(said).__name__
    return "".join(sign if sign.isprintable() else "?" for sign in text[:120])


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        """Follow to https alone, or from http, which no mirror has, to http."""
        if urlsplit(newurl).scheme not in ("https", req.type):
            raise urllib.error.URLError(f"redirects must stay with {req.type}, got one to {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Bounded(HTTPConnection):
    def getresponse(self) -> HTTPResponse:
        """Read the headers, within a time."""
        timer = Timer(HEADERS_SECONDS, self._hang_up)
        timer.daemon = True
        timer.start()
        try:
            return super().getresponse()
        finally:
            timer.cancel()

    def _hang_up(self) -> None:
        if self.sock is not None:
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)


class _BoundedTls(_Bounded, HTTPSConnection):
    """The same over TLS."""


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_Bounded, req)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_BoundedTls, req)


def _make_opener() -> urllib.request.OpenerDirector:
    """Return an opener that knows the web and nothing else: no files, no ftp."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Redirects(),
        _Http(),
        _Https(),
    ):
        opener.add_handler(handler)
    return opener
