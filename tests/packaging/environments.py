"""Virtual environments that hold an installed wheel and nothing but the packages named, linked and not copied."""

import os
import subprocess
import sys
import venv
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement


class Environment:
    """An environment of its own: nothing of the one that runs the tests is seen in it, but what was linked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *command: object, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Run a program of this environment in an empty folder beside it."""
        program, *arguments = map(str, command)
        place = self.folder / "work"
        place.mkdir(exist_ok=True)
        # Where Python looks, and what colours and widths commands print, is not for the tests' surroundings to say.
        left_out = ("PYTHONPATH", "VIRTUAL_ENV", "FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS")
        surroundings = {name: value for name, value in os.environ.items() if name not in left_out}
        return subprocess.run(
            [str(self.folder / "bin" / program), *arguments],
            capture_output=True,
            text=True,
            cwd=place,
            env={**surroundings, "OMP_NUM_THREADS": "1"},
            timeout=timeout,
        )

    def python(self, code: str) -> str:
        """Run a program with warnings as errors; return what it prints."""
        done = self.run("python", "-W", "error", "-c", code)
        assert done.returncode == 0, done.stderr
        return done.stdout


def install(folder: Path, wheel: Path, requirements: Iterable[str], extras: str = "") -> Environment:
    """Make an environment with what the requirements need, then let pip install the wheel, without an index.

    pip refuses a wheel that depends on anything that is not linked.
    """
    venv.create(folder, symlinks=True)
    site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    for package in needed(requirements):
        link(package, site)
    environment = Environment(folder)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*pip, "--no-index", "--disable-pip-version-check", f"sfao{extras} @ {wheel.as_uri()}"],
        capture_output=True,
        text=True,
        env=alone,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return environment


def needed(requirements: Iterable[str]) -> list[Distribution]:
    """The installed distributions that satisfy the requirements, and all that those need themselves."""
    found: dict[str, Distribution] = {}
    waiting = [Requirement(text) for text in requirements]
    seen = set()
    while waiting:
        requirement = waiting.pop()
        if str(requirement) in seen:
            continue
        seen.add(str(requirement))
        package = distribution(requirement.name)
        found[package.metadata["Name"]] = package
        for text in package.requires or []:
            inner = Requirement(text)
            extras = requirement.extras or {""}
            if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(inner)
    return list(found.values())


def link(package: Distribution, site: Path) -> None:
    """Link the top folders and files of an installed distribution."""
    home = Path(str(package.locate_file("")))
    for top in {file.parts[0] for file in package.files or [] if file.parts[0] not in ("..", "__pycache__")}:
        if (home / top).exists() and not (site / top).exists():
            (site / top).symlink_to((home / top).resolve())
