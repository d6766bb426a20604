"""The state of products among directions: what is known of them, and what is stale."""

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from sfao.gating._products import PatternProducts


def write_pattern(pattern: "PatternProducts") -> dict[str, Any]:
    """Return what is known and what is stale: computed anew in other pieces, a product may differ in a bit."""
    return {
        "active": list(pattern.active),
        "has_zero": pattern.has_zero,
        "inverse_norms": pattern.kept_norms.clone(),
        "gram": pattern.kept_gram.clone(),
        "stale_norms": sorted(pattern.stale_norms),
        "stale_gram": sorted(pattern.stale_gram),
    }


def read_pattern(pattern: "PatternProducts", state: dict[str, Any], device: torch.device) -> "PatternProducts":
    """Return the products with what was known of them."""
    pattern.has_zero = state["has_zero"]
    pattern.kept_norms = state["inverse_norms"].to(device, copy=True)
    pattern.kept_gram = state["gram"].to(device, copy=True)
    pattern.stale_norms, pattern.stale_gram = set(state["stale_norms"]), set(state["stale_gram"])
    return pattern
