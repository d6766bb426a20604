"""Looks at a gate: what it decided, what it holds, and at the last update, which step() leaves in `.grad`."""

from collections.abc import Mapping, Sequence
from math import nan
from statistics import fmean

import torch
from torch import Tensor

from sfao.gating.decision import COUNTED, Decision
from sfao.optim import _gate_path as gate_path
from sfao.optim._gate_path import Path, Report
from sfao.optim._host_path import LayerGradient, find_finite_gradients
from sfao.optim._sharding.sharded_path import find_sharded_updates
from sfao.optim._sharding.shards import Shards, localise
from sfao.optim._whole_or_not import Exactly
from sfao.optim.layers import Layer


class Looks:
    """The answers of a gate to whoever looks; they wait for a device."""

    layers: list[Layer]
    shards: Shards | None
    task: int
    _path: Path
    _exactly: Exactly

    def _set_up_looks(self) -> None:
        #: Whether somebody has asked for the risk and the shares kept: they are then measured at every step.
        self._interest: set[str] = set()
        self._last_risk: float | None = None
        self._last_kept: dict[str, float] = {}
        #: An error that a device reported to `telemetry`, which does not raise: step() will.
        self._postponed: Exception | None = None

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
    def paths(self) -> dict[str, float]:
        """How long the way of each layer has been since it was last consolidated, in units of its own length then."""
        return {layer.name: float(layer.travel.path) for layer in self.layers if layer.remembers_inputs}

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

    @property
    def is_empty(self) -> bool:
        """True if no layer remembers anything."""
        return not any(len(layer.memory) or layer.remembers_inputs for layer in self.layers)

    def risk(self) -> float:
        """Return the interference risk of the last gated update u: the most it points against a direction, R(u; B).

        For a layer that remembers its inputs, by how much u changes its outputs for them, relative to what they are:
        times the learning rate, that is the drift of one step. With momentum the step taken is another. Read from
        `.grad` after step(); after zero_grad() it is the last value, measured at every step since somebody asked,
        and nan if nobody had.
        """
        self._interest.add("risk")
        if self._path.report().norms and self._is_zeroed():
            return nan if self._last_risk is None else self._last_risk
        self._last_risk = self._exactly(self._measure_risk)
        return self._last_risk

    def _measure_risk(self) -> float:
        return self._path.work_whole(lambda: measure_risk(self.layers))

    def kept(self) -> dict[str, float]:
        """Return the share of the length of each layer's gradient that its last update kept.

        Of layers with directions alone, what :meth:`risk` says of zero_grad() holds: nan if nobody had asked before.
        """
        self._interest.add("kept")
        report = self._path.report()
        if report.norms and self._is_zeroed():
            unknown = dict.fromkeys(report.cosines, nan)
            return {**unknown, **self._last_kept, **report.kept}
        self._last_kept = self._exactly(lambda: measure_kept(self.layers, report))
        return dict(self._last_kept)

    def telemetry(self) -> dict[str, float]:
        """Return the numbers to watch a run by, flat; never raises, and measures nothing but what is known already.

        ``accept``, ``project``, ``discard`` and ``zero`` count decisions so far, over all layers and, as
        ``layers/NAME/accept``, of each; ``layers/NAME/cosine``, ``/kept`` and ``/drift`` are of the last step. ``kept``
        is the mean over layers, ``drift`` the largest; ``tasks`` and ``memory_bytes`` are of the memory.
        """
        values = {"tasks": float(self.task), "memory_bytes": float(self.memory_bytes)}
        try:
            report, counts = self._path.report(), self._path.counts()
        except Exception as error:
            self._postponed = error
            return values
        for name in COUNTED:
            values[str(name)] = float(sum(of_layer[name] for of_layer in counts.values()))
        shares = _find_shares(report, self._last_kept)
        values |= {"kept": fmean(shares.values())} if shares else {}
        values |= {"drift": max(report.drifts.values())} if report.drifts else {}
        for layer, of_layer in counts.items():
            values |= {f"layers/{layer}/{name}": float(number) for name, number in of_layer.items()}
        for kind, known in (("cosine", report.cosines), ("kept", shares), ("drift", report.drifts)):
            values |= {f"layers/{layer}/{kind}": value for layer, value in known.items()}
        return values

    def _is_zeroed(self) -> bool:
        """Tell whether the update of the last step is gone: there are no gradients, or zeros that were not decided."""
        gradients = [p.grad for layer in self.layers for p in layer.parameters if p.grad is not None]
        if all(decision is Decision.DISCARD for decision in self._path.report().decisions.values()):
            return not gradients
        if self.shards is not None:
            return not self.shards.ask(any(bool(localise(gradient).any()) for gradient in gradients))
        return not any(bool(gradient.any()) for gradient in gradients)

    def _look_at_update(self) -> None:
        """Measure what somebody wants to know of every update, while it is there."""
        if gate_path.is_capturing() or not any(self._path.report().norms.values()):
            return
        if "risk" in self._interest:
            self._last_risk = self._measure_risk()
        if "kept" in self._interest:
            self._last_kept = measure_kept(self.layers, self._path.report())


def _find_shares(report: Report, measured: Mapping[str, float]) -> dict[str, float]:
    """Return the share that each layer kept at the last step, as far as it is known."""
    known = {Decision.ACCEPT: 1.0, Decision.DISCARD: 0.0}
    decided = {name: known[decision] for name, decision in report.decisions.items() if decision in known}
    return {**{name: measured[name] for name in report.decisions if name in measured}, **decided, **report.kept}


def measure_risk(layers: Sequence[Layer]) -> float:
    """Return the most that the updates of these layers point against a remembered unit direction."""
    found = [(layer, update) for layer, update in _find_updates(layers, "risk()") if update.norm > 0]
    risks = [
        layer.memory.products.risk(update.matrices()) * update.norm / update.working_norm
        for layer, update in found
        if len(layer.memory)
    ]
    return max([0.0, *risks, *(measure_drift_rate(layer, update) for layer, update in found)])


def sum_squares(layer: Layer, lengths: Tensor) -> Tensor:
    """Return lengths of all rows of a layer, from those of the rows that are held here."""
    return lengths if layer.shards is None else layer.shards.total(lengths.double().square()).sqrt()


def measure_drift_rate(layer: Layer, update: LayerGradient) -> float:
    """Return by how much an update changes the layer's outputs for past inputs, relative to what they are."""
    matrices, first, rates = update.matrices(), 0, [0.0]
    for space in layer.spaces:
        of_space = matrices[first : first + len(space.layout.columns)]
        first += len(space.layout.columns)
        if not space.is_empty:
            change = space.answer([None if matrix is None else matrix.float() for matrix in of_space])
            lengths = sum_squares(layer, torch.stack([change.norm(), space.answers.norm()]))
            rates.append(float(lengths[0] / lengths[1].clamp_min(torch.finfo(torch.float32).tiny)))
    return max(rates) * update.norm / update.working_norm


def measure_kept(layers: Sequence[Layer], report: Report) -> dict[str, float]:
    """Return the share of the length of each layer's gradient that its update kept."""
    norms = {layer.name: update.norm for layer, update in _find_updates(layers, "kept()")}
    by_directions = {name: norms[name] / report.norms[name] for name in report.cosines if name in norms}
    return {**by_directions, **report.kept}


def _find_updates(layers: Sequence[Layer], reader: str) -> list[tuple[Layer, LayerGradient]]:
    is_whole = not layers or layers[0].shards is None
    found: Sequence[tuple[Layer, LayerGradient]]
    found = find_finite_gradients(layers) if is_whole else find_sharded_updates(layers)
    if not found:
        raise RuntimeError(f"{reader} reads the update that step() left in `.grad`; call it before zero_grad()")
    return list(found)
