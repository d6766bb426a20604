"""The options of SFAO and Gate: names, defaults, and the rules for their values."""

from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from operator import itemgetter
from typing import Any, TypedDict

import torch

from sfao.checks import check_at_least_zero, check_choice, check_count, is_number, nearest
from sfao.memory.directions import MEMORY_DTYPES, STORAGES
from sfao.memory.slots import EVICTIONS
from sfao.projection import PROJECTIONS


class GateOptions(TypedDict, total=False):
    """The options of a gate. A param group may override each of them.

    The paper leaves the number of samples, eviction and the thresholds for storing open; the defaults are our choices.

    Keys:
        accept_above: accept when the largest sampled cosine is above this, lambda_accept of the paper (0.85).
            -1 always accepts.
        discard_below: discard when it isn't above this, lambda_proj of the paper (-1e-4). -1 never discards, 1 always.
        strict: accept only when the smallest sampled cosine isn't negative either (False).
        samples: directions compared with at each step, k of the paper (10), drawn without replacement.
        cosine: ``"signed"``, or ``"absolute"`` as in the paper's released code.
        projection: off the ``"span"``, onto the ``"cone"`` of steps that increase no remembered loss, or
            ``"sequential"``, the released code's subtraction of one direction after the other.
        capacity: directions stored per layer (200). It may be raised later.
        admit_below: store a direction only if its largest cosine with the memory is below this, tau_add of the paper
            (1: store all). Below 1, storing works on a copy of the memory.
        min_norm: never store gradients shorter than this, tau_drop of the paper (0).
        eviction: ``"balanced"`` (equal shares of past tasks), ``"fifo"`` (the released code) or ``"reservoir"``.
        storage: ``"dense"`` rows, or ``"factored"`` matrices of rank ``rank`` (1).
        memory_dtype: ``"float32"`` or ``"bfloat16"``.
    """

    accept_above: float
    discard_below: float
    strict: bool
    samples: int
    cosine: str
    projection: str
    capacity: int
    admit_below: float
    min_norm: float
    eviction: str
    storage: str
    rank: int
    memory_dtype: str


def check_cosine(name: str, value: Any) -> None:
    if not (is_number(value) and -1 <= value <= 1):
        raise ValueError(f"`{name}` must be in [-1, 1], got {value!r}")


def check_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"`{name}` must be True or False, got {value!r}")


def one_of(*choices: str) -> Callable[[str, object], None]:
    return partial(check_choice, choices=choices)


#: The default of each option of a gate, and the rule for its values.
RULES: dict[str, tuple[Any, Callable[[str, Any], None]]] = {
    "accept_above": (0.85, check_cosine),
    "discard_below": (-1e-4, check_cosine),
    "strict": (False, check_bool),
    "samples": (10, check_count),
    "cosine": ("signed", one_of("signed", "absolute")),
    "projection": ("span", one_of(*PROJECTIONS)),
    "capacity": (200, check_count),
    "admit_below": (1.0, check_cosine),
    "min_norm": (0.0, check_at_least_zero),
    "eviction": ("balanced", one_of(*EVICTIONS)),
    "storage": ("dense", one_of(*STORAGES)),
    "rank": (1, check_count),
    "memory_dtype": ("float32", one_of(*MEMORY_DTYPES)),
}
OPTIONS = {name: default for name, (default, _) in RULES.items()}
#: Settings of SFAO's param groups beside the options of the gate.
SETTINGS: dict[str, Any] = {
    "lr": 1e-3,
    "momentum": 0.9,
    "dampening": 0.0,
    "weight_decay": 0.0,
    "nesterov": False,
    "maximize": False,
    "momentum_form": "ema",
    "decoupled_weight_decay": True,
}
GRANULARITIES = ("layer", "global")
#: Options of the whole gate, which no param group can override.
GATE_WIDE = {"granularity": "layer", "seed": 0, "process_group": None, "sync": True}
OF_DRIFT_BOUND = ("tolerance", "every", "energy", "examples", "clip")
#: Options of version 0.1.
REMOVED = ("memory", "keep", "restore", "axes", "rule", "memory_budget")
#: Returns the values of all options of a param group.
read_options = itemgetter(*OPTIONS)


def check_names(given: Collection[str], owner: str, known: Sequence[str]) -> None:
    """Raise a ValueError for a name that isn't an option of the class `owner`, and say whose it is."""
    others = {"SFAO": SETTINGS, "SFAO and sfao.Gate": (*OPTIONS, *GATE_WIDE), "DriftBound": OF_DRIFT_BOUND}
    for name in set(given) - set(known):
        for other, names in others.items():
            if name in names:
                raise ValueError(f"`{name}` is an option of sfao.{other}, not of sfao.{owner}")
        if name in REMOVED:
            raise ValueError(f"`{name}` was removed in version 0.2; the changelog says what replaces it")
        raise ValueError(f"unknown option `{name}`{nearest(name, tuple(known))}; the options are {', '.join(known)}")


def complete_group(group: dict[str, Any], given: Mapping[str, Any], owner: str) -> None:
    """Add the options that a param group doesn't have, those that were given for all groups or defaults, and check it.

    Keys that aren't ours belong to other tools, such as torch's learning rate schedulers.
    """
    known = (*OPTIONS, *(SETTINGS if owner == "SFAO" else ()))
    for name in group:
        if name in GATE_WIDE:
            raise ValueError(f"`{name}` is an option of the whole optimizer, got it in a param group")
        is_misspelled = name not in known and get_close_matches(name, known, n=1, cutoff=0.8)
        if is_misspelled or name in (*OF_DRIFT_BOUND, *REMOVED):
            check_names([name], owner, known)
    group.update(complete_options({**given, **{name: group[name] for name in OPTIONS if name in group}}))


def complete_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options, with defaults for those that aren't given, checked.

    A given threshold that crosses the default of the other moves the other with it.
    """
    options = {name: given.get(name, default) for name, default in OPTIONS.items()}
    accept_above, discard_below = options["accept_above"], options["discard_below"]
    if is_number(accept_above) and is_number(discard_below):
        if "discard_below" not in given:
            options["discard_below"] = min(accept_above, discard_below)
        elif "accept_above" not in given:
            options["accept_above"] = max(accept_above, discard_below)
    check_options(options)
    return options


def check_options(options: Mapping[str, Any]) -> None:
    """Raise a ValueError that names the first option whose value breaks its rule."""
    for name, (_, check) in RULES.items():
        check(name, options[name])
    accept_above, discard_below = options["accept_above"], options["discard_below"]
    if discard_below > accept_above:
        raise ValueError(f"`discard_below` must not exceed `accept_above` ({accept_above}), got {discard_below}")


def check_settings(group: Mapping[str, Any]) -> None:
    """Raise a ValueError that names the first setting of SFAO that breaks its rule."""
    for name in ("lr", "weight_decay"):
        check_at_least_zero(name, float(group[name]) if isinstance(group[name], torch.Tensor) else group[name])
    if not (is_number(group["momentum"]) and 0 <= group["momentum"] < 1):
        raise ValueError(f"`momentum` must be in [0, 1), got {group['momentum']!r}")
    check_choice("momentum_form", group["momentum_form"], ("ema", "heavy_ball"))
    if group["nesterov"] and (group["momentum"] == 0 or group["dampening"] != 0):
        raise ValueError(
            f"`nesterov` needs momentum and no dampening, got momentum {group['momentum']} "
            f"and dampening {group['dampening']}"
        )
    if group["momentum_form"] == "ema" and (group["nesterov"] or group["dampening"] != 0):
        raise ValueError('`momentum_form="ema"` goes with neither `nesterov` nor `dampening`, got one of them')


def describe(owner: str, gate: Any, groups: Sequence[Mapping[str, Any]]) -> str:
    """Return one line with the class, the number of layers, and the options that differ from their defaults."""
    layers, first = len(gate.layers), groups[0]
    defaults = {**(SETTINGS if owner == "SFAO" else {}), **OPTIONS}
    shared = {name for name in defaults if all(group[name] == first[name] for group in groups)}
    parts = [f"{layers} layer{'s' if layers > 1 else ''}"]
    parts += [f"{name}={first[name]!r}" for name in defaults if name in shared and first[name] != defaults[name]]
    parts += [f"{name} per layer" for name in defaults if name not in shared]
    parts += [f"{name}={getattr(gate, name)!r}" for name, value in GATE_WIDE.items() if getattr(gate, name) != value]
    return f"{owner}({', '.join(parts)})"
