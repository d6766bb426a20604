"""Looks at the last update, which step() leaves in `.grad`."""

from collections.abc import Sequence

from sfao.optim._gate_path import Report
from sfao.optim._host_path import LayerGradient, find_finite_gradients
from sfao.optim.layers import Layer


def measure_risk(layers: Sequence[Layer]) -> float:
    """Return the most that the updates of these layers point against a remembered unit direction."""
    risks = [
        layer.memory.products.risk(update.matrices()) * update.norm / update.working_norm
        for layer, update in _find_updates(layers, "risk()")
        if len(layer.memory) and update.norm > 0
    ]
    return max([0.0, *risks])


def measure_kept(layers: Sequence[Layer], report: Report) -> dict[str, float]:
    """Return the share of the length of each layer's gradient that its update kept."""
    norms = {layer.name: update.norm for layer, update in _find_updates(layers, "kept()")}
    by_directions = {name: norms[name] / report.norms[name] for name in report.cosines if name in norms}
    return {**by_directions, **report.kept}


def _find_updates(layers: Sequence[Layer], reader: str) -> list[tuple[Layer, LayerGradient]]:
    found = find_finite_gradients(layers)
    if not found:
        raise RuntimeError(f"{reader} reads the update that step() left in `.grad`; call it before zero_grad()")
    return found
