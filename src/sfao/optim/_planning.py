"""The options of param groups: what a memory budget buys, and whether groups go together."""

from collections.abc import Mapping
from itertools import chain
from typing import Any

from torch import Tensor
from torch.nn.parameter import is_lazy

from sfao.gating._layout import Layout, lay_out
from sfao.gating.budget import MemoryPlan, format_bytes, parse_bytes, plan_memories
from sfao.gating.memories import MEMORIES
from sfao.gating.options import DEFAULTS, OPTIONS_OF, GateOptions, check_options, check_rule_options, choose_memory
from sfao.gating.storage import STORAGE_OPTIONS, Storage
from sfao.gating.subspace import count_bytes


def plan_options(
    groups: list[dict[str, Any]], memory_budget: str | int | None, options: GateOptions
) -> tuple[dict[str, Any], MemoryPlan | None]:
    """Return the options with defaults filled in and, under a budget, with the axes, storage and capacity it allows.

    Groups that ask for another memory than the rest are given it by name.
    """
    chosen: dict[str, Any] = {**DEFAULTS, **options, "memory": choose_memory(options)}
    check_options(chosen)
    for group in groups:
        group.update(name_memory(group, options))
    for given in (options, *groups):
        check_rule_options(given, {**chosen, **given}["rule"])
    if memory_budget is None:
        return chosen, None
    for name in (*STORAGE_OPTIONS, "capacity", "axes", "memory"):
        if (name in options and name in STORAGE_OPTIONS) or any(name in group for group in groups):
            raise ValueError(f"`memory_budget` picks `{name}`; give one of the two, got both")
    plan = plan_memories(
        chosen["memory"],
        list(chain.from_iterable(map(_lay_out_group, groups))),
        list(chain.from_iterable(map(lay_out_matrices, groups))),
        parse_bytes(memory_budget),
        chosen["capacity"],
        chosen["axes"],
    )
    planned = {"axes": plan.axes} if plan.axes else {}
    planned |= {**plan.storage.options, "capacity": plan.capacity} if plan.capacity else {}
    return {**chosen, **planned}, plan


def name_memory(group: dict[str, Any], options: Mapping[str, Any]) -> dict[str, str]:
    """Return the memory that a group's own options ask for, if there are any."""
    own = {name: group[name] for names in OPTIONS_OF.values() for name in names if name in group}
    if "memory" in group:
        own["memory"] = group["memory"]
        return {"memory": choose_memory(own)}
    return {"memory": choose_memory({**options, **own})} if own else {}


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
        reason = _find_reason_against(parameter)
        if reason:
            raise ValueError(f"{reason} in {group['name']!r}")


def _find_reason_against(parameter: Tensor) -> str:
    """Return why a parameter cannot be gated, to be followed by where it is; nothing if it can."""
    if is_lazy(parameter):
        return "parameters must have a shape before they are gated, got a lazy one"
    if not parameter.dtype.is_floating_point:
        return f"parameters must be real numbers, got one of dtype {parameter.dtype}"
    if parameter.is_meta:
        return "parameters must hold values, got one on the device 'meta'"
    if any(size > 1 and stride == 0 for size, stride in zip(parameter.shape, parameter.stride(), strict=True)):
        return f"parameters must have a place for every entry, got an expanded one of strides {parameter.stride()}"
    return ""


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
    return lay_out([parameter.shape for parameter in _find_sized(group)])


def _find_sized(group: dict[str, Any]) -> list[Tensor]:
    """Return the parameters that have entries: the others have nothing to remember."""
    return [parameter for parameter in group["params"] if parameter.numel()]


def lay_out_matrices(group: dict[str, Any]) -> list[Layout]:
    """Return the layouts that begin with a matrix, which may have an input space."""
    found, first, sized = [], 0, _find_sized(group)
    for layout in _lay_out_group(group):
        if sized[first].ndim >= 2:
            found.append(layout)
        first += len(layout.columns)
    return found


def _bytes_at_capacity(group: dict[str, Any]) -> int:
    held = MEMORIES[group["memory"]]
    each = Storage.of(group).bytes_per_direction(_lay_out_group(group)) if "directions" in held else 0
    axes = sum(count_bytes(layout, group["axes"]) for layout in lay_out_matrices(group)) if "subspace" in held else 0
    return each * int(group["capacity"]) + axes
