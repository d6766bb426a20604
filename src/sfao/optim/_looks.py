"""Looks at a gate: what it decided, what it holds, and at the last update, which step() leaves in `.grad`."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch

from sfao.gating.decision import Decision
from sfao.optim._gate_path import Path, Report
from sfao.optim._host_path import LayerGradient, find_finite_gradients
from sfao.optim.layers import Layer


class Looks:
    """The answers of a gate to whoever looks; they wait for a device."""

    layers: list[Layer]
    _path: Path
    _exactly: Callable[[], AbstractContextManager[None]]

    @property
    def last_decisions(self) -> dict[str, Decision]:
        """The decisions of the last step, {layer: decision}; a layer whose gradient was zero is not in it."""
        return self._path.report().decisions

    @property
    def last_cosines(self) -> dict[str, float]:
        """The largest sampled cosine of each layer at the last step, where there were directions to compare with."""
        return self._path.report().cosines

    @property
    def drifts(self) -> dict[str, float]:
        """How far the outputs of each layer for past inputs had moved at the last step, relative to what they were."""
        return self._path.report().drifts

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Decisions so far: {layer: {accept, project, discard, zero}}."""
        return self._path.counts()

    @property
    def memory_bytes(self) -> int:
        """Bytes of axes and directions held now: what `memory_budget` limits and `state_dict` saves."""
        return sum(layer.memory.bytes + sum(space.bytes for space in layer.spaces) for layer in self.layers)

    @property
    def workspace_bytes(self) -> int:
        """Bytes of the small matrices beside the directions: their Gram matrix and its factor, in float64."""
        return sum(layer.memory.products.bytes for layer in self.layers)

    def risk(self) -> float:
        """Return the interference risk of the last gated update u: the most it points against a direction, R(u; B).

        For a layer that remembers its inputs, by how much u changes its outputs for them, relative to what they are:
        times the learning rate, that is the drift of one step. With momentum the step taken is another. Read from
        `.grad`: call this after step() and before zero_grad().
        """
        self._path.report()
        with self._exactly():
            return measure_risk(self.layers)

    def kept(self) -> dict[str, float]:
        """Return the share of the length of each layer's gradient that its last update kept; see :meth:`risk`."""
        report = self._path.report()
        with self._exactly():
            return measure_kept(self.layers, report)


def measure_risk(layers: Sequence[Layer]) -> float:
    """Return the most that the updates of these layers point against a remembered unit direction."""
    found = [(layer, update) for layer, update in _find_updates(layers, "risk()") if update.norm > 0]
    risks = [
        layer.memory.products.risk(update.matrices()) * update.norm / update.working_norm
        for layer, update in found
        if len(layer.memory)
    ]
    return max([0.0, *risks, *(measure_drift_rate(layer, update) for layer, update in found)])


def measure_drift_rate(layer: Layer, update: LayerGradient) -> float:
    """Return by how much an update changes the layer's outputs for past inputs, relative to what they are."""
    matrices, first, rates = update.matrices(), 0, [0.0]
    for space in layer.spaces:
        of_space = matrices[first : first + len(space.layout.columns)]
        first += len(space.layout.columns)
        if not space.is_empty:
            change = space.answer([None if matrix is None else matrix.float() for matrix in of_space])
            rates.append(float(change.norm() / space.answers.norm().clamp_min(torch.finfo(torch.float32).tiny)))
    return max(rates) * update.norm / update.working_norm


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
