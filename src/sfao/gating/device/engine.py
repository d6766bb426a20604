"""Cosines, decisions and projections of all layers at once, on the device."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log10
from typing import Any

import torch
import triton
from torch import Tensor

from sfao.gating.decision import ACCEPTED, DISCARDED, PROJECTED, ZERO, decision_code
from sfao.gating.device import kernels
from sfao.gating.device.addresses import Addresses
from sfao.gating.device.kernels import CLEAR, KEEP, PROJECT
from sfao.gating.device.launches import Launches, Norms
from sfao.gating.device.tables import Kind, Piece, pieces_of
from sfao.gating.memory import ORTHOGONALITY, Memory
from sfao.gating.products import by_block
from sfao.gating.stack import Matrices
from sfao.gating.transfer import send

#: What one pass leaves of a direction, relative to what it removed, divided by the smallest singular value.
PASS_ERROR = 1e-6
MAX_PASSES = 12
SMALLEST = 1e-300


@dataclass(frozen=True)
class Member:
    """A layer: its memory, the options of its group, and its gradients, contiguous, None where there is none."""

    memory: Memory
    options: dict[str, Any]
    gradients: Matrices


class DeviceGate:
    """The gate over some layers, for as long as their memories and the set of their gradients stay as they are.

    `run` turns the gradients into the updates, in place. Nothing in it waits for the device: what was decided stays
    there until somebody asks. Gradients are known by their addresses alone: whoever calls `run` keeps them.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self._options = [member.options for member in members]
        self.device = next(g.device for member in members for g in member.gradients if g is not None)
        present = [[g for g in member.gradients if g is not None] for member in members]
        gradients = [g for of_layer in present for g in of_layer]
        owners = [layer for layer, of_layer in enumerate(present) for _ in of_layer]
        held = [len(member.memory) for member in members]
        self._sampled = [min(member.options["samples"], count) for member, count in zip(members, held, strict=True)]
        self._draws = any(some < count for some, count in zip(self._sampled, held, strict=True))
        layers, capacity = len(members), max(1, *held)
        self._addresses = Addresses(gradients)
        self._launches, rest = self._make_launches(members, held, gradients)
        self._norms = Norms(gradients, self._addresses.table, owners, rest)
        self._remembers = self._column([count > 0 for count in held])
        self._looked_at = self._column([some == count for some, count in zip(self._sampled, held, strict=True)])
        self._sample_mask = torch.arange(capacity, device=self.device) < self._column(self._sampled)[:, None]
        self._sample = torch.arange(capacity, dtype=torch.int32).repeat(layers, 1).to(self.device)
        self._held, self._samples = self._column(held), self._column(self._sampled)
        self._seeds = self._column([member.memory.sampler.seed for member in members])
        #: How often each layer has drawn a sample; see `similarity.Sampler`.
        self.turns = self._column([member.memory.sampler.turn for member in members])
        self._inverse_norms = torch.zeros(layers, capacity, dtype=torch.float64, device=self.device)
        self._spans_all = self._column([False] * layers)
        self._first, self._second, self.passes = self._solvers(members, capacity)
        self.thresholds = torch.zeros(layers, 3, dtype=torch.float64, device=self.device)
        self.follow_thresholds()
        self._absolute = self._column([member.options["cosine"] == "absolute" for member in members])
        #: What the last run saw and did: a code a layer, the cosine that decided, the norms, whether all was finite.
        self.codes = torch.zeros(layers, dtype=torch.int64, device=self.device)
        self.cosines = torch.zeros(layers, dtype=torch.float64, device=self.device)
        self.norms = torch.zeros(layers, dtype=torch.float64, device=self.device)
        self.sound = torch.ones((), dtype=torch.bool, device=self.device)
        #: Decisions counted since this gate was made, and the first step whose gradient was not finite, by layer.
        self.counts = torch.zeros(layers, 4, dtype=torch.int64, device=self.device)
        self.broken = torch.zeros(layers, dtype=torch.bool, device=self.device)
        #: Whether the memories have changed since, and whether `run` was replayed all the same.
        self._retired = torch.zeros((), dtype=torch.bool, device=self.device)
        self.stale = torch.zeros((), dtype=torch.bool, device=self.device)

    # -- Every step ------------------------------------------------------------------------------------

    def follow_thresholds(self) -> None:
        """Decide as the options say now: above what to accept, below what to discard, how strictly."""
        names = ("accept_above", "discard_below", "strict")
        values = [[float(options[name]) for name in names] for options in self._options]
        send(torch.tensor(values, dtype=torch.float64), self.thresholds)

    def point_at(self, addresses: Sequence[int]) -> None:
        """Work on gradients, of the same shapes, at these addresses from now on."""
        self._addresses.point_at(addresses)

    def retire(self) -> None:
        """Let every run from now on, in a graph that somebody has captured, make all updates zero."""
        self._retired.fill_(True)

    def run(self) -> None:
        """Decide on every layer and make its gradient the update; if one is not finite, make all of them zero."""
        norms = self._norms.norms()
        finite = norms.isfinite()
        sound = finite.all() & ~self._retired
        zero = norms < SMALLEST
        roots = torch.where(zero | ~finite, 0.0, norms.rsqrt()).float()
        scales = norms.sqrt().float()

        looking = (self._remembers & ~zero & sound).int()
        if self._draws:
            self._draw(looking)
        cosines = self._dots(roots, looking, self._sample if self._draws else None)
        largest, smallest = self._extremes(cosines)
        accept, discard, strict = self.thresholds.unbind(1)
        codes = decision_code(largest, smallest, accept, discard, strict)
        codes = torch.where(zero, ZERO, torch.where(self._remembers, codes, ACCEPTED))
        projecting = (codes == PROJECTED) & sound

        dots = cosines
        if self._draws:
            dots = torch.where(
                self._looked_at[:, None], cosines, self._dots(roots, (projecting & ~self._looked_at).int())
            )
        weights = self._weights(dots, projecting)
        cleared = (codes == DISCARDED) | (projecting & self._spans_all) | ~sound
        actions = torch.where(cleared, CLEAR, torch.where(projecting, PROJECT, KEEP)).int()
        self._update(actions, scales, weights)
        again = projecting & ~cleared & self._rounds(dots, weights)
        for _ in range(self.passes):
            weights = self._weights(self._dots(roots, again.int()), again)
            self._update(torch.where(again, PROJECT, KEEP).int(), scales, weights)
        self._norms.clear_rest(sound)

        self.sound.copy_(sound)
        self.norms.copy_(norms)
        self.cosines.copy_(largest)
        self.codes.copy_(codes)
        self.broken |= ~finite
        self.stale |= self._retired
        self.counts += torch.nn.functional.one_hot(codes, 4) * sound

    def _draw(self, looking: Tensor) -> None:
        kernels.sampled[(len(self._sample),)](
            self._sample, self.turns, self._seeds, self._held, self._samples, looking, self._sample.shape[1],
            PLACES=triton.next_power_of_2(max(self._sampled)), num_warps=1,
        )  # fmt: skip

    def _dots(self, roots: Tensor, wanted: Tensor, sample: Tensor | None = None) -> Tensor:
        parts = [launches.dots(roots, wanted, sample) for launches in self._launches]
        if not parts:
            return self._inverse_norms
        return torch.stack(parts).sum(0) if len(parts) > 1 else parts[0].clone()

    def _update(self, actions: Tensor, scales: Tensor, weights: Tensor) -> None:
        for launches in self._launches:
            launches.update(actions, scales, weights)

    def _extremes(self, dots: Tensor) -> tuple[Tensor, Tensor]:
        """The largest cosine, signed or absolute, and the smallest signed one, of the directions looked at."""
        inverse = self._inverse_norms.gather(1, self._sample.long()) if self._draws else self._inverse_norms
        cosines = (dots * inverse).clamp(-1.0, 1.0)
        counted = self._sample_mask & (inverse > 0)
        none = ~counted.any(1)
        smallest = cosines.masked_fill(~counted, 2.0).amin(1)
        largest = cosines.masked_fill(~counted, -2.0).amax(1)
        largest = torch.where(self._absolute, torch.maximum(largest, -smallest), largest)
        return largest.masked_fill(none, 1.0), smallest.masked_fill(none, 1.0)

    def _weights(self, dots: Tensor, wanted: Tensor) -> Tensor:
        """The weights of the directions in the projections that are wanted, 0 elsewhere."""
        solved = torch.bmm(self._second, torch.bmm(self._first, dots[:, :, None]))[:, :, 0]
        return torch.where(wanted[:, None], solved, 0.0).float()

    def _rounds(self, dots: Tensor, weights: Tensor) -> Tensor:
        """Whether rounding may show in what is left: the gradients have norm 1 here."""
        left = (1 - (dots * weights).sum(1)).clamp(min=0).sqrt()
        size = 1 + weights.abs().sum(1)
        return self._orthogonal & (torch.finfo(torch.float32).eps * size > ORTHOGONALITY * left)

    # -- Once ------------------------------------------------------------------------------------------

    def _column(self, values: Sequence[Any]) -> Tensor:
        return torch.tensor(values).to(self.device)

    def _make_launches(
        self, members: Sequence[Member], held: list[int], gradients: list[Tensor]
    ) -> tuple[list[Launches], list[int]]:
        """A launch for every kind of piece, and the gradients, by number, that none reaches."""
        numbers = iter(range(len(gradients)))
        kinds: dict[Kind, list[Piece]] = {}
        addresses = [gradient.data_ptr() for gradient in gradients]
        reached = set()
        for layer, member in enumerate(members):
            numbered = [None if gradient is None else next(numbers) for gradient in member.gradients]
            if not held[layer]:
                continue
            for block, part in by_block(member.memory.blocks, numbered):
                for piece in pieces_of(layer, block, part):
                    kinds.setdefault(piece.kind(addresses[piece.gradient]), []).append(piece)
                    reached.add(piece.gradient)
        table = self._addresses.table
        launches = [Launches(kind, pieces, table, held, self._sampled) for kind, pieces in kinds.items()]
        return launches, [number for number in range(len(gradients)) if number not in reached]

    def _solvers(self, members: Sequence[Member], capacity: int) -> tuple[Tensor, Tensor, int]:
        """Matrices of all layers with weights = second (first dots), and how often a projection may need repeating."""
        layers = len(members)
        first = torch.zeros(layers, capacity, capacity, dtype=torch.float64, device=self.device)
        second = torch.zeros_like(first)
        orthogonal, passes = [False] * layers, 0
        for layer, member in enumerate(members):
            count = len(member.memory)
            if not count:
                continue
            projection = member.memory.projection(member.gradients, member.options["projection"])
            factors = projection.factors()
            if factors is None:
                raise ValueError(f"`projection` must be linear on a device, got {member.options['projection']!r}")
            inner, outer = factors
            first[layer, : len(inner), :count] = inner
            second[layer, :count, : len(inner)] = outer
            self._inverse_norms[layer, :count] = member.memory.inverse_norms(member.gradients)
            orthogonal[layer] = projection.is_orthogonal
            entries = sum(g.numel() for g in member.gradients if g is not None)
            self._spans_all[layer] = projection.is_orthogonal and projection.rank >= entries
            if projection.is_orthogonal:
                passes = max(passes, _repeats(projection.smallest))
        self._orthogonal = self._column(orthogonal)
        return first, second, passes


def _repeats(smallest: float) -> int:
    """How many more passes bring a projection off directions with this smallest singular value to rounding."""
    gain = -log10(PASS_ERROR / smallest) if smallest > PASS_ERROR else 0.5
    return min(MAX_PASSES, max(1, ceil(6 / max(gain, 0.5))))
