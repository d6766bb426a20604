"""The options of param groups: what a memory budget buys, and whether groups go together."""

from itertools import chain
from typing import Any

from sfao.gating._layout import Layout, lay_out
from sfao.gating.budget import MemoryPlan, format_bytes, parse_bytes, plan_memory
from sfao.gating.options import DEFAULTS, GateOptions, check_options, check_rule_options
from sfao.gating.storage import STORAGE_OPTIONS, Storage


def plan_options(
    groups: list[dict[str, Any]], memory_budget: str | int | None, options: GateOptions
) -> tuple[dict[str, Any], MemoryPlan | None]:
    """Return the options with defaults filled in and, under a budget, with the storage and capacity it allows."""
    chosen: dict[str, Any] = {**DEFAULTS, **options}
    check_options(chosen)
    for given in (options, *groups):
        check_rule_options(given, {**chosen, **given}["rule"])
    if memory_budget is None:
        return chosen, None
    for name in (*STORAGE_OPTIONS, "capacity"):
        if (name in options and name != "capacity") or any(name in group for group in groups):
            raise ValueError(f"`memory_budget` picks `{name}`; give one of the two, got both")
    of_groups = list(chain.from_iterable(map(_lay_out_group, groups)))
    plan = plan_memory(of_groups, parse_bytes(memory_budget), chosen["capacity"])
    return {**chosen, **plan.storage.options, "capacity": plan.capacity}, plan


def check_new_group(
    group: dict[str, Any], groups: list[dict[str, Any]], granularity: str, plan: MemoryPlan | None
) -> None:
    """Raise a ValueError if a gate over these groups could not take this one in."""
    check_options(group)
    _check_parameters(group, groups)
    if granularity == "global" and groups:
        check_same_options(group, groups[0])
    if plan is not None:
        _check_budget(group, groups, plan)


def _check_parameters(group: dict[str, Any], groups: list[dict[str, Any]]) -> None:
    """Raise a ValueError if the name or a parameter of a group is among these already, or is no leaf."""
    if any(group["name"] == known["name"] for known in groups):
        raise ValueError(f"`name` must be unique among param groups, got {group['name']!r} twice")
    known = {parameter for other in groups for parameter in other["params"]}
    for parameter in group["params"]:
        if parameter in known:
            raise ValueError(f"a parameter must be in one group once, got one of {group['name']!r} again")
        known.add(parameter)
        if not parameter.is_leaf:
            raise ValueError(f"parameters must be leaf tensors, got one in {group['name']!r} that is not")


def check_same_options(group: dict[str, Any], first: dict[str, Any]) -> None:
    """Raise a ValueError if a group of a global gate has other options than the first."""
    for name in DEFAULTS:
        if group[name] != first[name]:
            raise ValueError(
                f'`{name}` must be the same in all groups when granularity="global", '
                f"got {first[name]!r} and {group[name]!r}"
            )


def _check_budget(group: dict[str, Any], groups: list[dict[str, Any]], plan: MemoryPlan) -> None:
    """Raise a ValueError if the plan's budget does not hold one more group."""
    needed = sum(map(_bytes_at_capacity, (*groups, group)))
    if needed > plan.budget:
        raise ValueError(
            f"`memory_budget` of {format_bytes(plan.budget)} must hold all groups, "
            f"but with {group['name']!r} they need {format_bytes(needed)}"
        )


def _lay_out_group(group: dict[str, Any]) -> list[Layout]:
    return lay_out([parameter.shape for parameter in group["params"]])


def _bytes_at_capacity(group: dict[str, Any]) -> int:
    return Storage.of(group).bytes_per_direction(_lay_out_group(group)) * int(group["capacity"])
