"""Look every pin up in the database of known vulnerabilities; fail on one, and where the database cannot be asked.

.venv-supply/bin/python -m supply.audit     with `make audit`
"""

import subprocess
import sys
from pathlib import Path

from supply.pins import LOCKS


def explain(lock: Path, said: str) -> str:
    """Return one line for an audit that came to no result."""
    errors = [line for line in said.splitlines() if line.startswith("ERROR")] or said.splitlines()[-1:] or ["no reason"]
    reason = errors[0].split("_cli:")[-1][:200]
    return f"audit: nothing is known of {lock.name}, the database of vulnerabilities could not be asked: {reason}"


def audit(lock: Path) -> str:
    """Return what is wrong with the pins of a lock file, empty if nothing is known."""
    options = ("--strict", "--disable-pip", "--require-hashes", "--progress-spinner=off")
    command = [sys.executable, "-m", "pip_audit", *options]
    done = subprocess.run([*command, "--requirement", str(lock)], capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    if "vulnerabilit" in done.stderr and done.stdout:
        return f"audit: {lock.name}: {done.stdout.strip()}"
    return explain(lock, done.stderr)


def main() -> None:
    for lock in LOCKS.values():
        if wrong := audit(lock):
            sys.exit(wrong)
        print(f"{lock.name}: no known vulnerability")


if __name__ == "__main__":
    main()
