"""The projection of :class:`sfao.DriftBound`: its mathematics as pure functions, and all layers of a model at once.

The outputs W x of a layer on past inputs, with second moments A = E x x', have drifted since the weights were W* by

    drift(D) = sum over groups and rows of D A D' = E |D x|^2,    D = W - W*

The nearest D with drift(D) <= allowed is D (I + mu A)^-1, with the smallest mu >= 0 that obeys.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from sfao.bounded_layers import BoundedLayer
from sfao.cuda_graph import capture
from sfao.drift_memory import LayerMemory, Moments

#: Newton steps for mu. The last error is removed by scaling D, so few are enough. On a CPU they end when it is small.
NEWTON_STEPS, CLOSE = 6, 1.0001
#: Spectra longer than this are padded for each other only.
LONG = 4096


def measure(drift: Tensor, moments: Moments) -> tuple[Tensor, Tensor]:
    """Return the coordinates D V, and the squared length of D along every axis, as `Moments.spectrum` orders them."""
    along = torch.bmm(drift, moments.axes.to(drift.dtype))
    lengths = along.square().sum(1)
    outside = torch.linalg.vector_norm(drift.flatten(1), dim=1).square() - lengths.sum(1)
    return along, torch.cat([lengths.flatten(), outside.clamp_min_(0)])


def find_shares(drifts: Tensor, spectrum: Tensor, allowed: Tensor) -> Tensor:
    """Return the share of D that is kept along every axis, 1 / (1 + mu a_j), for many layers at once (layers x axes).

    mu solves  phi(mu) = sum_j l_j a_j / (1 + mu a_j)^2 = allowed.  Newton's method on phi^(-1/2), which is concave and
    nearly linear, rises to mu from below (More and Sorensen 1983). Scaling D removes what is left of the error.

    Args:
        drifts: l_j a_j, (layers x axes): the squared length of D along an axis, times its value.
        spectrum: a_j, (layers x axes), zero where a layer has fewer axes.
        allowed: (layers x 1), above 0.
    """
    mu = torch.zeros_like(allowed)
    for step in range(NEWTON_STEPS + 1):
        shares = torch.reciprocal(mu * spectrum + 1)
        left = drifts * shares.square()
        phi = left.sum(1, keepdim=True)
        if step == NEWTON_STEPS or (phi.device.type == "cpu" and bool((phi <= CLOSE * allowed).all())):
            break
        slope = (left * shares * spectrum).sum(1, keepdim=True).clamp_min(1e-300)
        mu = (mu + phi / slope * ((phi / allowed).sqrt() - 1)).clamp_min(0)
    return shares * (allowed / phi.clamp_min(1e-300)).sqrt().clamp_max(1)


def excess_(drift: Tensor, along: Tensor, moments: Moments, shares: Tensor) -> Tensor:
    """Turn D into D - D (I + mu A)^-1, in place.

    Args:
        drift: D.
        along: the coordinates D V.
        moments: A.
        shares: the shares of D that are kept along the axes of the spectrum.
    """
    groups, axes = moments.values.shape
    inside, outside = shares[: groups * (axes + 1)].split((groups * axes, groups))
    inside, outside = inside.view(groups, 1, axes), outside.view(groups, 1, 1)
    return drift.mul_(1 - outside).baddbmm_(along * (outside - inside), moments.axes.to(drift.dtype).mT)


class Projection:
    """Projects the weights of all layers to their nearest allowed points.

    On a CPU, layers inside their sets are skipped. On other devices nothing is read back, so nothing waits. On CUDA the
    projection is captured as a graph: it is hundreds of small kernels, and launching them takes most of the time.

    Args:
        layers: the layers of the model, by name.
        memory: what is stored of some of them.
        tolerances: of these.
        acted: how often each layer was projected before.
        mixed: layers where a gradient mixed used and unused rows before.
    """

    def __init__(
        self,
        layers: Mapping[str, BoundedLayer],
        memory: Mapping[str, LayerMemory],
        tolerances: Mapping[str, float],
        acted: Mapping[str, int],
        mixed: Collection[str],
    ) -> None:
        # Layers that share weights are projected one after the other, in rounds; so are those with long spectra,
        # embeddings, to which others would be padded.
        rounds: dict[tuple[int, bool], list[str]] = {}
        for number, (name, own) in enumerate(memory.items()):
            turn = sum(layers[other].weight is layers[name].weight for other in list(memory)[:number])
            rounds.setdefault((turn, len(own.moments.spectrum) > LONG), []).append(name)
        rounds = dict(sorted(rounds.items()))
        self.names = [name for names in rounds.values() for name in names]
        self._layers, self._memory = [layers[name] for name in self.names], [memory[name] for name in self.names]
        self._moments = [own.moments for own in self._memory]
        ends = list(accumulate(map(len, rounds.values())))
        self._rounds = [
            (slice(start, end), pad_sequence([own.spectrum for own in self._moments[start:end]], batch_first=True))
            for start, end in zip([0, *ends], ends, strict=False)
        ]
        device = self._memory[0].energy.device if memory else torch.device("cpu")
        self.waits = device.type == "cpu"
        #: By layer: how often it was projected, and its largest drift, which isn't finite if its weights were not.
        self.acted = torch.tensor([acted.get(name, 0) for name in self.names], dtype=torch.int64, device=device)
        self.largest = torch.zeros_like(self.acted, dtype=torch.float64)
        #: By layer: True once a gradient mixed used and unused rows, and whether there are unused rows at all.
        self._mixed = torch.tensor([name in mixed for name in self.names], dtype=torch.bool, device=device)
        self._has_unused = [not bool(own.used.all()) for own in self._memory]
        self._allowed, self._allowed_mixed = torch.ones(2, len(memory), dtype=torch.float64, device=device)
        for number, (name, own) in enumerate(zip(self.names, self._memory, strict=True)):
            self._allowed[number] = own.allowance(tolerances[name], own.used)
            self._allowed_mixed[number] = own.allowance(tolerances[name], torch.ones_like(own.used))
        self._graph: Any = None
        self._addresses: list[int] = []
        if device.type == "cuda" and not any(layer.is_sharded for layer in self._layers):
            self._capture()

    @property
    def allowed(self) -> Tensor:
        """The allowed drift of every layer."""
        return torch.where(self._mixed, self._allowed_mixed, self._allowed) if any(self._has_unused) else self._allowed

    @property
    def acted_by_name(self) -> dict[str, int]:
        """How often each layer was projected."""
        return dict(zip(self.names, self.acted.tolist(), strict=True))

    @property
    def mixed_names(self) -> list[str]:
        """Layers where a gradient mixed used and unused rows since the last consolidation."""
        return [name for name, is_mixed in zip(self.names, self._mixed.tolist(), strict=True) if is_mixed]

    def note_gradients(self) -> None:
        """Note layers whose gradients mix used and unused rows: from then on their unused rows count too."""
        for number, (layer, memory) in enumerate(zip(self._layers, self._memory, strict=True)):
            rows = layer.rows_with_gradient() if self._has_unused[number] else None
            if rows is not None:
                self._mixed[number] |= (rows & memory.used).any() & (rows & ~memory.used).any()

    def measure(self) -> Tensor:
        """Return the drift of every layer, without changing anything."""
        found = [self._measure(own, spectrum)[1].sum(1) for own, spectrum in self._rounds]
        return torch.cat(found) if found else self._allowed

    def apply(self, *, is_fast: bool = False) -> None:
        """Move the weights of every layer to the nearest allowed point.

        Args:
            is_fast: allow products of less precision on a CPU, too.
        """
        if self._graph is not None and self._addresses == self._read_addresses():
            self._graph.replay()
            return
        mkldnn: Any = torch.backends.mkldnn
        with fast_products(mkldnn.matmul, "bf16") if is_fast else nullcontext():
            self._subtract_excess()
        if self._graph is not None:  # the parameters have moved
            self._capture()

    def _subtract_excess(self) -> None:
        with fast_products(torch.backends.cuda.matmul, "tf32"):
            for layer, removed in self.find_excess():
                layer.subtract(removed)

    def _capture(self) -> None:
        """Capture the projection. Weights inside their sets, as after a consolidation, don't change meanwhile."""
        self._addresses = self._read_addresses()
        with torch.no_grad(), torch.autocast("cuda", enabled=False):
            self._graph = capture(self._subtract_excess, self._allowed.device)

    def _read_addresses(self) -> list[int]:
        return [parameter.data_ptr() for layer in self._layers for parameter in layer.parameters]

    def find_excess(self) -> Iterator[tuple[BoundedLayer, list[Tensor]]]:
        """Yield what to subtract from the parameters of each layer. Subtract it before the next one."""
        for own, spectrum in self._rounds:
            measured, drifts = self._measure(own, spectrum)
            total, allowed = drifts.sum(1), self.allowed[own]
            outside = total > allowed
            self.acted[own].add_(outside)
            torch.maximum(self.largest[own], total, out=self.largest[own])
            moves = outside.tolist() if self.waits else [True] * len(measured)
            if any(moves):
                shares = find_shares(drifts, spectrum, allowed[:, None])
                for place, layer in enumerate(self._layers[own]):
                    if moves[place]:
                        drift, along, moments = measured[place]
                        yield layer, layer.split(excess_(drift, along, moments, shares[place].to(drift.dtype)))

    def _measure(self, own: slice, spectrum: Tensor) -> tuple[list[tuple[Tensor, Tensor, Moments]], Tensor]:
        """Return D, D V and the moments of these layers, and their drifts along all axes, padded (layers x axes)."""
        measured, lengths = [], []
        for number in range(own.start, own.stop):
            drift = self._read_drift(number)
            along, of_layer = measure(drift, self._moments[number])
            measured.append((drift, along, self._moments[number]))
            lengths.append(of_layer)
        return measured, pad_sequence(lengths, batch_first=True).double() * spectrum

    def _read_drift(self, number: int) -> Tensor:
        """Return D = W - W* of a layer; rows that don't count are zero."""
        layer, memory = self._layers[number], self._memory[number]
        drift = layer.subtract_anchor(memory.anchor)
        return drift * (memory.used | self._mixed[number])[:, :, None] if self._has_unused[number] else drift


@contextmanager
def fast_products(backend: Any, precision: str) -> Iterator[None]:
    """Allow matrix products of less precision. Their error, below 1 % of a correction, is corrected the next time."""
    before, backend.fp32_precision = backend.fp32_precision, precision
    try:
        yield
    finally:
        backend.fp32_precision = before
