"""Cosines, decisions and projections of all layers at once, on the device."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log10
from typing import Any

import torch
import triton
from torch import Tensor

from sfao.gating._block import Matrices
from sfao.gating._device import layer_kernels
from sfao.gating._device.addresses import Addresses
from sfao.gating._device.launches import Launches, Norms
from sfao.gating._device.tables import Kind, Piece, pieces_of
from sfao.gating._products import ORTHOGONALITY, by_block
from sfao.gating._transfer import send
from sfao.gating.memory import Memory
from sfao.gating.rule import MAX_OPTIONS, Rule

#: What one pass leaves of a direction, relative to what it removed, divided by the smallest singular value.
PASS_ERROR = 1e-6
ROUNDING = torch.finfo(torch.float32).eps
MAX_PASSES = 12
#: What kernels of one layer take of its directions at a time.
PLACES = 256


@dataclass(frozen=True)
class Member:
    """A layer: its memory, the options of its group, its rule, and its contiguous gradients (None for none)."""

    memory: Memory
    options: dict[str, Any]
    rule: Rule
    rule_state: tuple[float, ...]
    gradients: Matrices


class DeviceGate:
    """The gate over some layers, for as long as their memories and the set of their gradients stay as they are.

    `run` turns the gradients into the updates, in place. Nothing in it waits for the device: what was decided stays
    there until somebody asks. Gradients are known by their addresses alone: whoever calls `run` keeps them.
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self._rules = [(member.rule, member.options) for member in members]
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
        self._held, self._samples = self._column(held), self._column(self._sampled)
        self._sample = torch.arange(capacity, dtype=torch.int32, device=self.device).repeat(layers, 1)
        self._seeds = self._column([member.memory.sampler.seed for member in members])
        #: How often each layer has drawn a sample; see `cosine_rule.Sampler`.
        self.turns = self._column([member.memory.sampler.turn for member in members])
        self._inverse_norms = self._zeros(layers, capacity, dtype=torch.float64)
        self._spans_all = self._column([False] * layers)
        self._first, self._second, self.passes = self._solvers(members, capacity)
        self._decide_kernel = layer_kernels.decide_with(members[0].rule.judge)
        self.rule_options = self._zeros(layers, MAX_OPTIONS, dtype=torch.float64)
        self.rule_states = torch.tensor([m.rule_state for m in members], dtype=torch.float64, device=self.device)
        self.follow_options()
        self._absolute = self._column([member.options["cosine"] == "absolute" for member in members])
        self._roots, self._scales = self._zeros(layers), self._zeros(layers)
        self._looking, self._projecting, self._again, self._actions = self._zeros(4, layers, dtype=torch.int32).unbind()
        self._weights = self._zeros(layers, capacity)
        #: What the last run saw and did: a code a layer, the cosine that decided, the norms, whether all was finite.
        self.codes = self._zeros(layers, dtype=torch.int64)
        self.cosines = self._zeros(layers, dtype=torch.float64)
        self.norms = self._zeros(layers, dtype=torch.float64)
        self.sound = torch.ones((), dtype=torch.bool, device=self.device)
        #: Decisions counted since this gate was made, and whose gradients were not finite in some step.
        self.counts = self._zeros(layers, 4, dtype=torch.int64)
        self.broken = self._zeros(layers, dtype=torch.bool)
        #: Whether the memories have changed since, and whether `run` was replayed all the same.
        self._retired = self._zeros(1, dtype=torch.bool)
        self.stale = self._zeros(1, dtype=torch.bool)

    # -- Every step ------------------------------------------------------------------------------------

    def follow_options(self) -> None:
        """Decide by the options of the rule as they are now."""
        values = [rule.numbers(options) for rule, options in self._rules]
        send(torch.tensor(values, dtype=torch.float64, device="cpu"), self.rule_options)

    def point_at(self, addresses: Sequence[int]) -> None:
        """Work on gradients, of the same shapes, at these addresses from now on."""
        self._addresses.point_at(addresses)

    def retire(self) -> None:
        """Let every run from now on, in a graph that somebody has captured, make all updates zero."""
        self._retired.fill_(True)

    def run(self) -> None:
        """Decide on every layer and make its gradient the update; if one is not finite, make all of them zero."""
        self._norms.measure(self.norms, self._roots, self._scales, self._looking, self._held)
        if self._draws:
            self._draw()
        cosines = self._dots(self._looking, self._sample if self._draws else None)
        self._decide(cosines)
        dots = self._dots(self._projecting) if self._draws else cosines
        self._update(dots, self._projecting, first=True)
        for _ in range(self.passes):
            self._update(self._dots(self._again), self._again, first=False)
        self._norms.clear_rest(self.sound)

    def _draw(self) -> None:
        layers, capacity = self._sample.shape
        layer_kernels.draw[(layers,)](
            self._sample, self.turns, self._seeds, self._held, self._samples, self._looking, capacity,
            PLACES=triton.next_power_of_2(max(self._sampled)), num_warps=1,
        )  # fmt: skip

    def _dots(self, wanted: Tensor, sample: Tensor | None = None) -> Tensor:
        """Inner products of the wanted gradients, at norm 1, with the directions of the sample, or with all."""
        for launches in self._launches:
            launches.dots(self._roots, wanted, sample)
        return self._parts.sum((0, 3))

    def _decide(self, cosines: Tensor) -> None:
        layers, capacity = self._sample.shape
        self._decide_kernel[(layers,)](
            self.codes, self.cosines, self._projecting, self.sound, self.counts, self.broken, self.stale, self.turns,
            self.norms, cosines, self._inverse_norms, self._sample, self._held, self._samples,
            self.rule_options, self.rule_states, self._absolute, self._retired, layers, capacity,
            sampled=self._draws, LAYERS=triton.next_power_of_2(layers), PLACES=PLACES,
        )  # fmt: skip

    def _update(self, dots: Tensor, wanted: Tensor, first: bool) -> None:
        """Project the wanted gradients, of these inner products; the first time, discard or zero others."""
        layers, capacity = self._sample.shape
        solved = torch.bmm(self._second, torch.bmm(self._first, dots[:, :, None]))
        layer_kernels.weigh[(layers,)](
            self._weights, self._actions, self._again, solved, dots, self.codes, wanted, self.sound,
            self._spans_all, self._orthogonal, capacity,
            first=first, rounding=ROUNDING, tolerance=ORTHOGONALITY, PLACES=PLACES,
        )  # fmt: skip
        for launches in self._launches:
            launches.update(self._actions, self._scales, self._weights)

    # -- Once ------------------------------------------------------------------------------------------

    def _column(self, values: Sequence[Any]) -> Tensor:
        return torch.tensor(values, device=self.device)

    def _zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=self.device)

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
        most = max((kind.rank for kind in kinds), default=1)
        self._parts = self._zeros(max(1, len(kinds)), len(held), max(1, *held), most, dtype=torch.float64)
        launches = [
            Launches(kind, pieces, self._addresses.table, held, self._sampled, part)
            for (kind, pieces), part in zip(kinds.items(), self._parts, strict=False)
        ]
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
            projection = member.memory.products.projection(
                member.gradients, member.options["projection"], member.memory.slots
            )
            factors = projection.factors()
            if factors is None:
                raise ValueError(f"`projection` must be linear on a device, got {member.options['projection']!r}")
            inner, outer = factors
            first[layer, : len(inner), :count] = inner
            second[layer, :count, : len(inner)] = outer
            self._inverse_norms[layer, :count] = member.memory.products.inverse_norms(member.gradients)
            orthogonal[layer] = projection.is_orthogonal
            entries = sum(g.numel() for g in member.gradients if g is not None)
            self._spans_all[layer] = projection.is_orthogonal and projection.rank >= entries
            if projection.is_orthogonal:
                passes = max(passes, _count_repeats(projection.smallest))
        self._orthogonal = self._column(orthogonal)
        return first, second, passes


def _count_repeats(smallest: float) -> int:
    """Return how many more passes bring a projection off directions with this smallest singular value to rounding."""
    gain = -log10(PASS_ERROR / smallest) if smallest > PASS_ERROR else 0.5
    return min(MAX_PASSES, max(1, ceil(6 / max(gain, 0.5))))
