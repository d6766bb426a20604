"""The licence of an installed package as an SPDX expression, from what its metadata say.

python -m supply.licences     write supply/licences.md: every pin of constraints.txt and its licence
"""

import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from supply.pins import ROOT, read_pins

TABLE = ROOT / "supply" / "licences.md"
#: Names of licences in fields that are older than SPDX expressions.
SPDX = {
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "ISC License": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
#: Licences that a field may name as they are.
IDENTIFIERS = ("Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "PSF-2.0")


def find_licence(package: Distribution) -> str:
    """Return the licence as an SPDX expression; empty when the metadata do not tell."""
    told = package.metadata
    if expression := told.get("License-Expression"):
        return str(expression)
    classifiers = [line.rpartition("::")[2].strip() for line in told.get_all("Classifier") or []]
    field = (told.get("License") or "").strip()
    for text in (field, *classifiers):
        if text in SPDX:
            return SPDX[text]
        if text and all(word in (*IDENTIFIERS, "AND", "OR") for word in text.split()):
            return text
    return read_licence_text("\n".join([field, *_read_files(package)]))


def read_licence_text(text: str) -> str:
    """Return the licence that a text is of, for the few that metadata give in full."""
    words = re.sub(r"\W+", " ", text).lower()
    if "permission is hereby granted free of charge" in words:
        return "MIT"
    if "redistribution and use in source and binary forms" in words:
        return "BSD-3-Clause" if "neither the name" in words or "the names of" in words else "BSD-2-Clause"
    return ""


def _read_files(package: Distribution) -> list[str]:
    named = [file for file in package.files or [] if re.search(r"licen[cs]e|copying", file.name, re.IGNORECASE)]
    return [file.read_text() for file in named if ".dist-info" in str(file)]


def list_licences() -> dict[str, str]:
    """Return {package: licence} of all pins; raise a ValueError that names those without, or not installed."""
    found: dict[str, str] = {}
    for name in read_pins(ROOT / "constraints.txt"):
        try:
            found[name] = find_licence(distribution(name))
        except PackageNotFoundError:
            raise ValueError(f"{name} must be installed for its licence to be read: `make test` installs it") from None
    unknown = [name for name, licence in found.items() if not licence]
    if unknown:
        raise ValueError(f"every package must say its licence, but not {', '.join(unknown)}")
    return dict(sorted(found.items()))


def make_table() -> str:
    """Return the table in Markdown."""
    pins = read_pins(ROOT / "constraints.txt")
    rows = [f"| {name} | {pins[name]} | {licence} |" for name, licence in list_licences().items()]
    head = ["# Licences", "", "Of everything in `constraints.txt`, as its metadata say. Made by `make sbom`.", ""]
    return "\n".join([*head, "| package | version | licence |", "|---|---|---|", *rows]) + "\n"


if __name__ == "__main__":
    try:
        TABLE.write_text(make_table())
    except ValueError as error:
        sys.exit(f"licences: {error}")
    print(f"{TABLE.parent.name}/{TABLE.name}")
