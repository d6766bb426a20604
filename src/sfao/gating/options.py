"""The options of the gate: names, defaults and the rules their values must follow."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, TypedDict

import torch

from sfao.checks import check_at_least_zero, check_choice, check_count, is_number, nearest
from sfao.gating.eviction import EVICTIONS
from sfao.gating.projection import PROJECTIONS


class GateOptions(TypedDict, total=False):
    accept_above: float
    discard_below: float
    samples: int
    cosine: str
    strict: bool
    projection: str
    capacity: int
    admit_below: float
    min_norm: float
    eviction: str
    storage: str
    rank: int
    memory_dtype: str


DEFAULTS: GateOptions = {
    "accept_above": 0.85,
    "discard_below": -1e-4,
    "samples": 10,
    "cosine": "signed",
    "strict": False,
    "projection": "span",
    "capacity": 200,
    "admit_below": 1.0,
    "min_norm": 0.0,
    "eviction": "balanced",
    "storage": "dense",
    "rank": 1,
    "memory_dtype": "float32",
}

#: What is set once for all groups.
WHOLE = ("granularity", "seed", "memory_budget")
#: What is fixed once a layer has its memory; the other options can be changed while training.
FIXED = ("capacity", "storage", "rank", "memory_dtype")

MEMORY_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

CHOICES = {
    "cosine": ("signed", "absolute"),
    "projection": tuple(PROJECTIONS),
    "eviction": tuple(EVICTIONS),
    "storage": ("dense", "factored"),
    "memory_dtype": tuple(MEMORY_DTYPES),
}


def check_options(options: Mapping[str, Any]) -> None:
    """Raise a ValueError that names the first option whose value breaks its rule."""
    for name in ("accept_above", "discard_below", "admit_below"):
        if not (is_number(options[name]) and -1 <= options[name] <= 1):
            raise ValueError(f"`{name}` must be in [-1, 1], got {options[name]!r}")
    if options["discard_below"] > options["accept_above"]:
        raise ValueError(
            f"`discard_below` must not exceed `accept_above` ({options['accept_above']}), "
            f"got {options['discard_below']}"
        )
    for name in ("samples", "capacity", "rank"):
        check_count(name, options[name])
    check_at_least_zero("min_norm", options["min_norm"])
    if not isinstance(options["strict"], bool):
        raise ValueError(f"`strict` must be True or False, got {options['strict']!r}")
    for name, choices in CHOICES.items():
        check_choice(name, options[name], choices)


def check_group_names(given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Refuse what cannot be an option of a param group, or looks like a misspelt one.

    Other keys belong to other tools, such as the learning rate schedulers of torch.
    """
    for name in given:
        if name in WHOLE:
            raise ValueError(f"`{name}` is an option of the whole optimizer, got it in a param group")
        if name not in known and get_close_matches(name, known, n=1, cutoff=0.8):
            raise ValueError(f"`{name}` is no option of a param group{nearest(name, known)}")
