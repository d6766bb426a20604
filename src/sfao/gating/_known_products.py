"""What is known of the products among a memory's directions: saved, loaded, and gone back to."""

from collections.abc import Sequence
from copy import copy
from typing import Any

import torch

from sfao.gating._products import Active, PatternProducts, Products
from sfao.gating.projection import Projection

#: By active parameters, what is known of the products; the projections made of them; and the slots that have changed.
Known = tuple[dict[Active, PatternProducts], dict[tuple[str, Active], Projection], set[int]]


def copy_known(products: Products) -> Known:
    """Return what is known, to `know` again."""
    return _copy_patterns(products.patterns), dict(products.projections), set(products.changed)


def know(products: Products, known: Known) -> None:
    """Know what was known when it was copied."""
    patterns, projections, changed = known
    products.patterns, products.projections = _copy_patterns(patterns), dict(projections)
    products.changed = set(changed)


def write_products(products: Products) -> list[dict[str, Any]]:
    """Return what is known and what is stale: computed anew in other pieces, a product may differ in a bit."""
    if products.changed:
        products.note_changes()
    return [
        {
            "active": list(pattern.active),
            "has_zero": pattern.has_zero,
            "inverse_norms": pattern.kept_norms.clone(),
            "gram": pattern.kept_gram.clone(),
            "stale_norms": sorted(pattern.stale_norms),
            "stale_gram": sorted(pattern.stale_gram),
        }
        for pattern in products.patterns.values()
    ]


def load_products(products: Products, state: Sequence[dict[str, Any]], device: torch.device) -> None:
    """Know what was written."""
    products.forget()
    for saved in state:
        pattern = PatternProducts(tuple(saved["active"]), 0)
        pattern.has_zero = saved["has_zero"]
        pattern.kept_norms = saved["inverse_norms"].to(device, copy=True)
        pattern.kept_gram = saved["gram"].to(device, copy=True)
        pattern.stale_norms, pattern.stale_gram = set(saved["stale_norms"]), set(saved["stale_gram"])
        products.patterns[pattern.active] = pattern


def _copy_patterns(patterns: dict[Active, PatternProducts]) -> dict[Active, PatternProducts]:
    """Return copies of which one may go stale without the other; tensors are replaced when they change."""
    found = {active: copy(pattern) for active, pattern in patterns.items()}
    for pattern in found.values():
        pattern.stale_norms, pattern.stale_gram = set(pattern.stale_norms), set(pattern.stale_gram)
    return found
