"""Downloads that go on where they stopped, and that are there whole and right or not at all.

The bytes that have come so far are in NAME.part next to the target. The file becomes the target only once its digest
is right. Nothing that a server says is believed: no more bytes are taken than the file has, nor more time than
a slow line needs, and whatever else is wrong with an answer, the next mirror is asked.
"""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from sfao.lab.data.digests import compute_digest
from sfao.lab.data.errors import DownloadError
from sfao.lab.data.fetching.progress import Progress, ignore_progress
from sfao.lab.data.fetching.request import Answer, Cut, ask

CHUNK = 1 << 18
#: Requests to one mirror that breaks off, before the next mirror is tried.
ATTEMPTS = 4
PAUSE_SECONDS = 0.5
#: A connection that gives less than this, over so many seconds, is as good as broken.
SLOWEST_BYTES_PER_SECOND = 1000
PATIENCE_SECONDS = 60.0


def download(
    urls: Sequence[str], target: Path, digest: str, *, size: int, progress: Progress = ignore_progress
) -> None:
    """Download `target`, of so many bytes, from the first mirror that has it; an existing one is replaced by it."""
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


def _download_from(url: str, target: Path, digest: str, size: int, progress: Progress) -> None:
    part = get_partial_path(target)
    resumed = _get_size(part) > 0
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


def _fetch_with_retries(url: str, part: Path, name: str, size: int, progress: Progress) -> None:
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE_SECONDS * attempt)
        try:
            _fetch_rest(url, part, name, size, progress)
            return
        except Cut as cut:
            problem = cut
            if cut.is_of_another_file:
                part.unlink(missing_ok=True)
    kept = "; what came is kept and resumed next time" if _get_size(part) else ""
    raise DownloadError(f"{url} broke off {ATTEMPTS} times ({problem}){kept}")


def _fetch_rest(url: str, part: Path, name: str, size: int, progress: Progress) -> None:
    """Make one request for the bytes that the partial file lacks."""
    have = _get_size(part)
    if have == size:
        return
    if have > size:
        part.unlink()
        have = 0
    # A server may ignore the range and answer with the whole file.
    with ask(url, have, size) as answer, part.open("ab" if answer.start else "wb") as file:
        done = answer.start
        progress(name, done, size)
        for chunk in _read_chunks(answer, size - done):
            file.write(chunk)
            done += len(chunk)
            progress(name, done, size)
    if done < size:
        raise Cut(f"{done} of {size} bytes")


def _read_chunks(answer: Answer, most: int) -> Iterator[bytes]:
    """Yield the bytes as they come, so many at most; a Cut says that they come too slowly."""
    began, done = time.monotonic(), 0
    while done < most and (chunk := answer.read(min(CHUNK, most - done))):
        done += len(chunk)
        yield chunk
        seconds = time.monotonic() - began
        if seconds > PATIENCE_SECONDS and done < SLOWEST_BYTES_PER_SECOND * seconds:
            raise Cut(f"{done} bytes in {seconds:.0f} seconds")


def _get_size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0
