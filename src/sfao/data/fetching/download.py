"""Downloads that go on where they stopped, and that are there whole and right or not at all.

The bytes that have come so far are in NAME.part next to the target. The file becomes the
target only once its digest is right.
"""

import os
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException, HTTPResponse
from pathlib import Path

from sfao.data.digests import compute_digest
from sfao.data.errors import DownloadError
from sfao.data.fetching.progress import Progress, ignore_progress

CHUNK = 1 << 18
TIMEOUT_SECONDS = 30.0
#: Requests to one mirror that breaks off, before the next mirror is tried.
ATTEMPTS = 4
PAUSE_SECONDS = 0.5


class _Cut(Exception):  # noqa: N818, a message to the caller, not an error of its own
    """The connection ended before the file did."""


def download(
    urls: Sequence[str], target: Path, digest: str, *, size: int | None = None, progress: Progress = ignore_progress
) -> None:
    """Download `target` from the first mirror that has it; an existing target is replaced only by the right bytes.

    `size` is the total to show when the server gives none; the digest alone decides whether the file is right.
    """
    problems = []
    for url in urls:
        try:
            _download_from(url, target, digest, size, progress)
            return
        except DownloadError as error:
            problems.append(str(error))
    raise DownloadError(f"{target.name} could not be downloaded: {'; '.join(problems)}")


def get_partial_path(target: Path) -> Path:
    """Return the path of the bytes that have come so far."""
    return target.with_name(target.name + ".part")


def _download_from(url: str, target: Path, digest: str, size: int | None, progress: Progress) -> None:
    part = get_partial_path(target)
    resumed = part.exists()
    _fetch_with_retries(url, part, target.name, size, progress)
    found = compute_digest(part, like=digest)
    if found == digest:
        os.replace(part, target)
        return
    part.unlink()
    if resumed:  # the earlier bytes may have been the wrong ones
        _download_from(url, target, digest, size, progress)
        return
    raise DownloadError(f"{url} must give a file of {digest}, got {found}")


def _fetch_with_retries(url: str, part: Path, name: str, size: int | None, progress: Progress) -> None:
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE_SECONDS * attempt)
        try:
            _fetch_rest(url, part, name, size, progress)
            return
        except _Cut as cut:
            problem = cut
    raise DownloadError(f"{url} broke off {ATTEMPTS} times ({problem}); what came is kept and resumed next time")


def _fetch_rest(url: str, part: Path, name: str, size: int | None, progress: Progress) -> None:
    """Make one request for the bytes that the partial file lacks."""
    have = part.stat().st_size if part.exists() else 0
    response = _open(url, have)
    if response is None:
        return
    with response:
        # A server may ignore the range and answer with the whole file.
        resuming = response.status == 206
        if resuming and not (response.headers["Content-Range"] or "").startswith(f"bytes {have}-"):
            part.unlink()
            raise _Cut(f"asked for bytes from {have}, got {response.headers['Content-Range']!r}")
        done = have if resuming else 0
        length = response.headers["Content-Length"]
        total = done + int(length) if length else size
        with part.open("ab" if resuming else "wb") as file:
            progress(name, done, total)
            while chunk := _read(response):
                file.write(chunk)
                done += len(chunk)
                progress(name, done, total)
        if length and total is not None and done < total:
            raise _Cut(f"{done} of {total} bytes")


def _open(url: str, have: int) -> HTTPResponse | None:
    """Request the bytes from `have` on and return the response; None when there are no more."""
    headers = {"User-Agent": "sfao", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    try:
        response: HTTPResponse = urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=TIMEOUT_SECONDS
        )
        return response
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and have:  # range not satisfiable: all is here, or more than there is
                return None
            raise DownloadError(f"{url} answered {error.code} {error.reason}") from None
    except (OSError, HTTPException) as error:
        raise DownloadError(f"{url} did not answer ({getattr(error, 'reason', error)})") from None


def _read(response: HTTPResponse) -> bytes:
    try:
        return response.read(CHUNK)
    except (OSError, HTTPException) as error:
        raise _Cut(str(error) or type(error).__name__) from None
