"""What a layer can remember of past tasks, and the options of the memory of input spaces."""

from collections.abc import Mapping
from typing import Any

from sfao.checks import check_count, is_number

#: The parts of each memory.
MEMORIES = {
    "subspace": ("subspace",),
    "directions": ("directions",),
    "both": ("subspace", "directions"),
}

SUBSPACE_DEFAULTS: dict[str, Any] = {"keep": 0.6, "tolerance": 0.15, "restore": 2.0, "axes": 200}


def check_subspace_options(options: Mapping[str, Any]) -> None:
    """Raise a ValueError that names the first option whose value breaks its rule."""
    keep, tolerance, restore = options["keep"], options["tolerance"], options["restore"]
    if not (is_number(keep) and 0 <= keep <= 1):
        raise ValueError(f"`keep` must be in [0, 1], got {keep!r}")
    if not (is_number(tolerance) and tolerance > 0):
        raise ValueError(f"`tolerance` must be above 0, got {tolerance!r}")
    if not (is_number(restore) and restore >= 1):
        raise ValueError(f"`restore` must be at least 1, got {restore!r}")
    check_count("axes", options["axes"])
