"""Values in JSON under a digest of their own, by which any change of the file is noticed."""

import json
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Any

#: Files from before there were digests say no format.
FORMAT = 2


def seal(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with the format of the file first, and last their digest."""
    sealed = {"format": FORMAT, **values}
    return {**sealed, "sha256": digest_values(sealed)}


def unseal(sealed: Any, new: Collection[str] = ()) -> dict[str, Any]:
    """Return the values, or raise a ValueError if they are not those that were sealed.

    Values without a format are from before, and returned as they are, unless they have what only sealed ones have: a
    digest, or a name of `new`.
    """
    if not isinstance(sealed, dict):
        raise ValueError(f"it must hold names and values, got {type(sealed).__name__}")
    if "format" not in sealed:
        left = [name for name in ("sha256", *new) if name in sealed]
        if left:
            raise ValueError(f"`format` must be there beside `{left[0]}`, got none")
        return sealed
    if sealed["format"] != FORMAT:
        raise ValueError(f"`format` must be {FORMAT}, or the file is of another version, got {sealed['format']!r}")
    values = {name: value for name, value in sealed.items() if name != "sha256"}
    if sealed.get("sha256") != digest_values(values):
        raise ValueError("it was changed after it was written: `sha256` must be the digest of all other values")
    del values["format"]
    return values


def digest_values(values: Mapping[str, Any]) -> str:
    """Return a digest that does not depend on the order of names, or on white space in the file."""
    return sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
