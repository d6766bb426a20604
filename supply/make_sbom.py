"""supply/sbom.json: the software bill of materials of constraints.txt, CycloneDX 1.6.

python -m supply.make_sbom     write the file, from the metadata of what is installed

What `pip install sfao` brings is `required`, all else `optional`. No time and no random serial number is in it: the
same pins give the same file.
"""

import json
import sys
from importlib.metadata import distribution, requires
from typing import Any

from packaging.requirements import Requirement

from supply.licences import list_licences
from supply.pins import LOCKS, ROOT, normalise, read_hashes, read_pins

SBOM = ROOT / "supply" / "sbom.json"
OURS = "sfao"


def list_needed(name: str, known: dict[str, str], extras: tuple[str, ...] = ("",)) -> list[str]:
    """Return the pinned packages that a package needs on this platform."""
    needed = set()
    for text in requires(name) or []:
        requirement = Requirement(text)
        applies = requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras)
        if applies and normalise(requirement.name) in known:
            needed.add(normalise(requirement.name))
    return sorted(needed)


def collect(names: list[str], known: dict[str, str]) -> set[str]:
    """Return these packages and all that they need."""
    found, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += list_needed(name, known)
    return found


def make_sbom() -> dict[str, Any]:
    """Return the bill of materials as JSON values."""
    constraints = ROOT / "constraints.txt"
    pins, licences, hashes = read_pins(constraints), list_licences(), read_hashes(LOCKS[constraints])
    extras = ("", "lab", "docs", "dev")
    ours = {"name": OURS, "version": distribution(OURS).version}
    required = collect(list_needed(OURS, pins), pins)
    components = [
        {
            "type": "library",
            "bom-ref": _refer(name, version),
            "name": name,
            "version": version,
            "scope": "required" if name in required else "optional",
            "licenses": [_describe_licence(licences[name])],
            "purl": _refer(name, version),
            "properties": [{"name": "sfao:lock:files", "value": str(len(hashes[name]))}],
        }
        for name, version in sorted(pins.items())
    ]
    needs = {OURS: list_needed(OURS, pins, extras), **{name: list_needed(name, pins) for name in sorted(pins)}}
    versions = {**pins, OURS: ours["version"]}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": _refer(**ours),
                **ours,
                "licenses": [_describe_licence("MIT")],
                "purl": _refer(**ours),
            }
        },
        "components": components,
        "dependencies": [
            {"ref": _refer(name, versions[name]), "dependsOn": [_refer(each, pins[each]) for each in needed]}
            for name, needed in needs.items()
        ],
    }


def _refer(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


def _describe_licence(expression: str) -> dict[str, Any]:
    return {"expression": expression} if " " in expression else {"license": {"id": expression}}


def main() -> None:
    try:
        SBOM.write_text(json.dumps(make_sbom(), indent=1) + "\n")
    except ValueError as error:
        sys.exit(f"make_sbom: {error}")
    print(f"{SBOM.parent.name}/{SBOM.name}")


if __name__ == "__main__":
    main()
