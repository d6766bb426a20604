"""The options of SFAO and Gate: names, defaults, and the rules for their values."""

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
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


OPTIONS: dict[str, Any] = {
    "accept_above": 0.85,
    "discard_below": -1e-4,
    "strict": False,
    "samples": 10,
    "cosine": "signed",
    "projection": "span",
    "capacity": 200,
    "admit_below": 1.0,
    "min_norm": 0.0,
    "eviction": "balanced",
    "storage": "dense",
    "rank": 1,
    "memory_dtype": "float32",
}
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

CHOICES = {
    "cosine": ("signed", "absolute"),
    "projection": tuple(PROJECTIONS),
    "eviction": tuple(EVICTIONS),
    "storage": tuple(STORAGES),
    "memory_dtype": tuple(MEMORY_DTYPES),
}
#: Options that are fixed once a layer has its memory.
FIXED = ("storage", "rank", "memory_dtype")
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
        if name in (*OF_DRIFT_BOUND, *REMOVED):
            check_names([name], owner, known)
        if name not in known and get_close_matches(name, known, n=1, cutoff=0.8):
            raise ValueError(f"unknown option `{name}` of a param group{nearest(name, known)}")
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
    for name in ("accept_above", "discard_below", "admit_below"):
        if not (is_number(options[name]) and -1 <= options[name] <= 1):
            raise ValueError(f"`{name}` must be in [-1, 1], got {options[name]!r}")
    if options["discard_below"] > options["accept_above"]:
        raise ValueError(
            f"`discard_below` must not exceed `accept_above` ({options['accept_above']}), "
            f"got {options['discard_below']}"
        )
    if not isinstance(options["strict"], bool):
        raise ValueError(f"`strict` must be True or False, got {options['strict']!r}")
    for name in ("samples", "capacity", "rank"):
        check_count(name, options[name])
    check_at_least_zero("min_norm", options["min_norm"])
    for name, choices in CHOICES.items():
        check_choice(name, options[name], choices)


def check_changed_options(name: str, options: Mapping[str, Any], before: tuple[Any, ...], held: int) -> None:
    """Raise a ValueError if the options of a layer, which anyone may change, break a rule.

    Args:
        name: the layer.
        options: its param group.
        before: the values that were last checked.
        held: the number of directions that the layer holds.
    """
    check_options(options)
    for option, old in zip(OPTIONS, before, strict=True):
        if option in FIXED and options[option] != old:
            raise ValueError(
                f"`{option}` is fixed when a layer is made ({old!r}), got {options[option]!r} for {name!r}"
            )
    if options["capacity"] < held:
        raise ValueError(
            f"`capacity` must be at least the {held} directions stored for {name!r}, got {options['capacity']}"
        )


def check_same_options(groups: Sequence[Mapping[str, Any]]) -> None:
    """Raise a ValueError if the groups of a global gate have different options."""
    for name in OPTIONS:
        for group in groups[1:]:
            if group[name] != groups[0][name]:
                raise ValueError(
                    f'`{name}` must be the same in all groups when granularity="global", '
                    f"got {groups[0][name]!r} and {group[name]!r}"
                )


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
