"""The options of the gate: names, defaults and the rules their values must follow."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from sfao.checks import check_at_least_zero, check_choice, check_count, is_number, nearest
from sfao.gating.eviction import EVICTIONS
from sfao.gating.memories import MEMORIES, SUBSPACE_DEFAULTS, check_subspace_options
from sfao.gating.projection import PROJECTIONS
from sfao.gating.rules import RULES, RuleOptions
from sfao.gating.storage import MEMORY_DTYPES, STORAGES


class GateOptions(RuleOptions, total=False):
    """The options of a gate, each of which a param group may override.

    Keys:
        memory: what a layer remembers: the ``"subspace"`` of its inputs, ``"directions"`` of past gradients, or
            ``"both"``. The subspace unless an option of directions is given.

    Keys, of the subspace:
        keep: the least share of a gradient's length that is kept once a task is remembered and the layer has moved a
            little (0.6); after t tasks ``keep ** sqrt(t)``. 1 keeps everything, 0 projects off all axes, as GPM does.
        tolerance: a layer whose outputs have drifted this far, relatively, is held twice as tightly (0.15).
        restore: a softened gradient gets its length back, but grows to at most so many times what was left (2).
        axes: axes held per layer at most (200).

    Keys, of directions:
        accept_above: accept when the largest sampled cosine is above (0.85). -1 always accepts.
        discard_below: discard when it is not above this (-1e-4). -1 never discards, 1 always does.
        samples: directions compared with at each step, drawn without replacement (10).
        cosine: ``"signed"``, or ``"absolute"`` as in the paper's released code.
        strict: accept only when the smallest sampled cosine is not negative either (False).
        projection: off the ``"span"``, onto the ``"cone"`` of steps that increase no remembered loss, or
            ``"sequential"``, the released code's subtraction of one direction after the other.
        capacity: directions held per layer (200).
        admit_below: store a direction only if its largest cosine with the memory is below (1: store all).
        min_norm: never store gradients shorter than this (0).
        eviction: ``"balanced"`` (equal shares of past tasks), ``"fifo"`` or ``"reservoir"``.
        storage: ``"dense"`` rows, or ``"factored"`` matrices of rank ``rank`` (1).
        memory_dtype: ``"float32"`` or ``"bfloat16"``.
        rule: how cosines become decisions; ``"cosine"`` by the thresholds above. A rule has its own options.
    """

    memory: str
    keep: float
    tolerance: float
    restore: float
    axes: int
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
    rule: str


COMMON: GateOptions = {
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
    "rule": "cosine",
}
#: All options: those of every rule, then those that all rules share.
DEFAULTS: dict[str, Any] = {
    "memory": "subspace",
    **SUBSPACE_DEFAULTS,
    **{name: default for rule in RULES.values() for name, default in rule.options.items()},
    **COMMON,
}

#: Options of the whole gate, which no group can override.
GATE_WIDE = ("granularity", "seed", "memory_budget", "process_group", "sync")
#: Options that are fixed once a layer has its memory; the others can be changed while training.
FIXED = ("memory", "capacity", "storage", "rank", "memory_dtype", "rule")

CHOICES = {
    "memory": tuple(MEMORIES),
    "cosine": ("signed", "absolute"),
    "projection": tuple(PROJECTIONS),
    "eviction": tuple(EVICTIONS),
    "storage": tuple(STORAGES),
    "memory_dtype": tuple(MEMORY_DTYPES),
}


#: The options of each memory alone.
OPTIONS_OF = {
    "subspace": tuple(SUBSPACE_DEFAULTS),
    "directions": tuple(name for name in DEFAULTS if name not in ("memory", *SUBSPACE_DEFAULTS)),
}


def choose_memory(given: Mapping[str, Any], options_of: Mapping[str, tuple[str, ...]] = OPTIONS_OF) -> str:
    """Return the memory that these options ask for; a ValueError if they are of another than they name."""
    if "memory" in given:
        memory: str = given["memory"]
        for other, names in options_of.items():
            foreign = [name for name in names if name in given]
            if foreign and memory in MEMORIES and other not in MEMORIES[memory]:
                raise ValueError(f"`{foreign[0]}` is an option of memory={other!r}, got it with memory={memory!r}")
        return memory
    found = {memory: [name for name in names if name in given] for memory, names in options_of.items()}
    if all(found.values()):
        first, second = (names[0] for names in found.values())
        raise ValueError(
            f'`{first}` and `{second}` are options of different memories; give `memory="both"`, or one of the two'
        )
    return "directions" if found["directions"] else str(DEFAULTS["memory"])


def check_rule_options(given: Mapping[str, Any], rule: str) -> None:
    """Raise a ValueError for an option of another rule than this, which would have no effect."""
    for name in given:
        owners = [owner for owner, other in RULES.items() if name in other.options]
        if owners and rule in RULES and rule not in owners:
            raise ValueError(f"`{name}` is an option of the rule {owners[0]!r}, got it with rule={rule!r}")


def check_options(options: Mapping[str, Any]) -> None:
    """Raise a ValueError that names the first option whose value breaks its rule."""
    check_choice("rule", options["rule"], tuple(RULES))
    RULES[options["rule"]].check(options)
    if not (is_number(options["admit_below"]) and -1 <= options["admit_below"] <= 1):
        raise ValueError(f"`admit_below` must be in [-1, 1], got {options['admit_below']!r}")
    for name in ("samples", "capacity", "rank"):
        check_count(name, options[name])
    check_at_least_zero("min_norm", options["min_norm"])
    check_subspace_options(options)
    for name, choices in CHOICES.items():
        check_choice(name, options[name], choices)


def check_group_names(given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Refuse keys that cannot be options of a param group, or look like misspelt ones.

    Other keys belong to other tools, such as the learning rate schedulers of torch.
    """
    for name in given:
        if name in GATE_WIDE:
            raise ValueError(f"`{name}` is an option of the whole optimizer, got it in a param group")
        if name not in known and get_close_matches(name, known, n=1, cutoff=0.8):
            raise ValueError(f"`{name}` is no option of a param group{nearest(name, known)}")
