"""Options under a memory budget: what the budget buys."""

from itertools import chain
from typing import Any

from sfao.gating.budget import MemoryPlan, bytes_per_direction, parse_bytes, plan_memory
from sfao.gating.layout import Layout, layouts
from sfao.gating.options import DEFAULTS, GateOptions, check_options

#: What a memory budget picks, so that it must not be given beside one.
PLANNED_OPTIONS = ("storage", "rank", "memory_dtype")


def planned_options(
    groups: list[dict[str, Any]], memory_budget: str | int | None, options: GateOptions
) -> tuple[dict[str, Any], MemoryPlan | None]:
    """The options with defaults filled in and, under a budget, with the storage and capacity it allows."""
    chosen: dict[str, Any] = {**DEFAULTS, **options}
    check_options(chosen)
    if memory_budget is None:
        return chosen, None
    for name in (*PLANNED_OPTIONS, "capacity"):
        if (name in options and name != "capacity") or any(name in group for group in groups):
            raise ValueError(f"`memory_budget` picks `{name}`; give one of the two, got both")
    plan = plan_memory(list(chain.from_iterable(map(_layouts, groups))), parse_bytes(memory_budget), chosen["capacity"])
    return {**chosen, "capacity": plan.capacity, **{name: getattr(plan, name) for name in PLANNED_OPTIONS}}, plan


def _layouts(group: dict[str, Any]) -> list[Layout]:
    return layouts([parameter.shape for parameter in group["params"]])


def bytes_at_capacity(group: dict[str, Any]) -> int:
    each = bytes_per_direction(_layouts(group), group["storage"], group["rank"], group["memory_dtype"])
    return each * int(group["capacity"])
