"""Random layers, options and gradients, stepped beside the reference twin."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from torch import Tensor

from sfao import SFAO, Decision
from sfao.gating.projection import SMALLEST_SINGULAR_VALUE
from sfao.gating.storage import MEMORY_DTYPES
from sfao.optim.layers import Layer
from sfao.optim.reference import ReferenceLayer, ReferenceSFAO

#: By dtype of a gradient: how far an update may be from the twin's, relative to the gradient.
TOLERANCES = {torch.float64: 1e-5, torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
SHAPES = [(), (1,), (5,), (3, 4), (4, 3), (7, 2), (1, 6), (6, 1), (2, 3, 2, 2), (9, 8), (0, 3), (3, 0), (0,)]
STEPS, STORED = 6, 5
#: Cosines this near to a threshold are equal to it but for rounding.
TIE = 2e-6


@dataclass
class Case:
    """One optimizer and its twin, over equal parameters, with a source of gradients."""

    seed: int
    random: Random = field(init=False)
    options: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self._generator = torch.Generator().manual_seed(self.seed)
        self.dtype = self.random.choice([torch.float32] * 4 + list(TOLERANCES))
        shapes = [
            [self.random.choice(SHAPES) for _ in range(self.random.randint(1, 3))]
            for _ in range(self.random.randint(1, 3))
        ]
        self.options = self._draw_options()
        groups = [{"params": [self._make(shape) for shape in of_group]} for of_group in shapes]
        self.fast = SFAO(groups, **self.options)
        twins = [{**group, "params": [p.detach().clone() for p in group["params"]]} for group in self.fast.param_groups]
        seed, granularity = self.options["seed"], self.options["granularity"]
        self.twin = ReferenceSFAO(twins, granularity=granularity, seed=seed)
        self._known: list[list[Tensor]] = []

    def _draw_options(self) -> dict[str, Any]:
        r = self.random
        low, high = sorted(r.choice([-1.0, -0.3, -1e-4, 0.0, 0.2, 0.5, 0.85, 1.0]) for _ in range(2))
        return {
            "memory": "directions",
            "lr": 0.1,
            "accept_above": high,
            "discard_below": low,
            "samples": r.choice([1, 2, 4, 10]),
            "cosine": r.choice(["signed", "absolute"]),
            "strict": r.random() < 0.3,
            "projection": r.choice(["span", "span", "sequential", "cone"]),
            "capacity": r.choice([1, 3, 8]),
            "admit_below": r.choice([1.0, 1.0, 0.9, 0.3]),
            "min_norm": r.choice([0.0, 0.0, 1e-3]),
            "eviction": r.choice(["balanced", "fifo", "reservoir"]),
            "storage": r.choice(["dense", "factored"]),
            "rank": r.choice([1, 2, 3]),
            "memory_dtype": r.choice(["float32", "bfloat16"]),
            "granularity": r.choice(["layer", "global"]),
            "momentum": r.choice([0.0, 0.9]),
            "weight_decay": r.choice([0.0, 0.1]),
            "seed": r.randrange(1000),
        }

    def _make(self, shape: tuple[int, ...]) -> Tensor:
        return torch.nn.Parameter(torch.randn(shape, generator=self._generator).to(self.dtype))

    @property
    def parameters(self) -> list[Tensor]:
        return [parameter for group in self.fast.param_groups for parameter in group["params"]]

    @property
    def twin_parameters(self) -> list[Tensor]:
        return [parameter for group in self.twin.groups for parameter in group["params"]]

    def draw(self) -> tuple[str, list[Tensor]]:
        """Return a kind of gradients, and gradients of it."""
        kind = self.random.choice(KINDS)
        noise = [torch.randn(p.shape, generator=self._generator, dtype=torch.float64) for p in self.parameters]
        known = self.random.choice(self._known) if self._known else noise
        other = self.random.choice(self._known) if self._known else noise
        pairs = zip(known, other, noise, strict=True)
        made = {
            "random": lambda k, o, n: n,
            "again": lambda k, o, n: k,
            "against": lambda k, o, n: -k,
            "scaled": lambda k, o, n: 1e3 * k,
            "nearly again": lambda k, o, n: k + 1e-3 * n,
            "inside the span": lambda k, o, n: 0.7 * k - 1.3 * o,
            "nearly inside": lambda k, o, n: k + o + 1e-5 * n,
            "tiny": lambda k, o, n: 1e-20 * n,
            "huge": lambda k, o, n: 1e18 * n if self.dtype not in (torch.float16,) else 1e3 * n,
            "denormal": lambda k, o, n: 1e-41 * n if self.dtype != torch.float16 else 1e-7 * n,
            "zero": lambda k, o, n: 0 * n,
            "one entry": lambda k, o, n: _keep_first(n),
            "one layer": lambda k, o, n: n if self.random.random() < 0.5 else 0 * n,
            "equal entries": lambda k, o, n: torch.ones_like(n),
            "whole numbers": lambda k, o, n: n.round(),
        }[kind]
        gradients = [made(*three).to(self.dtype) for three in pairs]
        if all(bool(torch.isfinite(g).all()) for g in gradients) and kind in KEPT:
            self._known.append([g.double() for g in gradients])
        return kind, gradients

    def give(self, gradients: list[Tensor]) -> None:
        for parameters in (self.parameters, self.twin_parameters):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()

    def remember(self) -> str:
        """Let both remember gradients; return what they were."""
        kind, gradients = self.draw()
        self.give(gradients)
        before = {name: list(layer.directions) for name, layer in self.twin.layers.items()}
        stored, twin_stored = self.fast.remember(), self.twin.remember()
        assert stored == twin_stored, f"seed {self.seed}: stored {stored} where the twin stored {twin_stored} of {kind}"
        for layer in self.fast.gate.layers:
            self._compare_held(layer, before[layer.name], f"seed {self.seed}, {kind}, layer {layer.name}")
        return kind

    def _compare_held(self, layer: Layer, before: list[Tensor], label: str) -> None:
        """Compare what both hold of new directions; let the twin go on with what is held here.

        Of a matrix with equal singular values there are many best ones of a lower rank, and near-dependent directions
        turn what was rounded in their last bit into a large part of a projection: neither is a mistake of anybody.
        """
        twin, held = self.twin.layers[layer.name], read_directions(layer)
        assert len(held) == len(twin.directions), f"{label}: {len(held)} directions for {len(twin.directions)}"
        for slot, (ours, theirs) in enumerate(zip(held, list(twin.directions), strict=True)):
            if slot < len(before) and theirs is before[slot]:
                continue
            unit = twin.gradient() / twin.gradient().norm()
            gap, allowed = float((ours - unit).norm()), float((theirs - unit).norm())
            rounding = 4 * torch.finfo(MEMORY_DTYPES[self.options["memory_dtype"]]).eps + 1e-6
            assert gap <= allowed + rounding, f"{label}: {gap:.2e} from the gradient, the twin {allowed:.2e}"
            twin.directions[slot] = ours

    def end_task(self) -> None:
        self.fast.end_task()
        self.twin.end_task()

    def step(self) -> "Iterator[Outcome]":
        """Step both; yield what became of each layer."""
        kind, gradients = self.draw()
        self.give(gradients)
        before = {layer.name: flatten(layer.parameters) for layer in self.fast.gate.layers}
        decisions = self.twin.step()
        self.fast.step()
        for layer in self.fast.gate.layers:
            twin = self.twin.layers[layer.name]
            yield Outcome(
                f"seed {self.seed}, {kind}, layer {layer.name}, {self.dtype}",
                self.fast.last_decisions.get(layer.name),
                decisions.get(layer.name),
                self.fast.last_cosines.get(layer.name, 0.0),
                before[layer.name],
                flatten(layer.parameters),
                twin.update,
                twin,
                self.dtype,
            )
        with torch.no_grad():
            for parameter, twin_parameter in zip(self.parameters, self.twin_parameters, strict=True):
                twin_parameter.copy_(parameter)


@dataclass
class Outcome:
    """What became of the gradient of one layer, here and in the twin."""

    label: str
    decision: Decision | None
    twin_decision: Decision | None
    cosine: float
    gradient: Tensor
    update: Tensor
    twin_update: Tensor
    twin: ReferenceLayer
    dtype: torch.dtype

    def check(self) -> None:
        """Raise an AssertionError if decision or update are not the twin's, up to rounding.

        - Denormals: entries are rounded to the grid of the gradient's dtype, which is no finer for small ones.
        - Nearly dependent directions: inner products with a gradient are rounded, and a singular value s divides that;
          products among the directions, in float64, know s as well as 1 / s^2 allows. Along the directions themselves,
          which is what counts, nothing of either is left.
        - Ties: a cosine that is within rounding of a threshold may be decided on either way.
        """
        if self.decision != self.twin_decision:
            assert self._is_tie, f"{self.label}: {self.decision} where the twin has {self.twin_decision}"
            return
        gap, size = float((self.update - self.twin_update).norm()), float(self.gradient.norm())
        finest = torch.finfo(self.dtype).smallest_normal * torch.finfo(self.dtype).eps
        working = torch.finfo(torch.float64 if self.dtype == torch.float64 else torch.float32).eps
        relative = TOLERANCES[self.dtype] + 10 * torch.finfo(torch.float64).eps / self._smallest**2
        relative += 4 * working / self._smallest
        assert gap <= relative * size + finest * len(self.gradient) ** 0.5, f"{self.label}: {gap / size:.1e} away"

    @property
    def _is_tie(self) -> bool:
        options = self.twin.options
        thresholds = [options["accept_above"], options["discard_below"], 0.0]
        cosines = [self.twin.cosine(self.gradient, direction) for direction in self.twin.directions]
        return any(abs(abs(cosine) - abs(threshold)) < TIE for cosine in cosines for threshold in thresholds)

    @property
    def _smallest(self) -> float:
        """The smallest singular value of the directions that counts."""
        if self.decision is not Decision.PROJECT:
            return 1.0
        values = torch.linalg.svdvals(torch.stack(self.twin.directions))
        return float(values[values > SMALLEST_SINGULAR_VALUE].min())


def read_directions(layer: Layer) -> list[Tensor]:
    """Return the directions that a layer holds, as unit vectors in float64."""
    parts = []
    for block in layer.memory.state_dict()["blocks"]:
        tensors = [tensor.double() for tensor in block["tensors"]]
        if block["kind"] == "factored":
            tensors = [torch.einsum("nkr,nkc->nrc", tensors[0], right).flatten(1) for right in tensors[1:]]
        parts += tensors
    return [vector / vector.norm() for vector in torch.cat(parts, 1)] if parts else []


def flatten(parameters: list[Tensor]) -> Tensor:
    """Return the gradients as one vector."""
    parts = [p.grad.flatten().double() for p in parameters if p.grad is not None]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64)


def _keep_first(noise: Tensor) -> Tensor:
    kept = torch.zeros_like(noise)
    kept.flatten()[:1] = noise.flatten()[:1]
    return kept


#: Kinds that later ones are made of: those of ordinary size.
KEPT = ("random", "nearly again", "nearly inside", "one entry", "one layer", "equal entries", "whole numbers")
KINDS = [
    "random",
    "random",
    "random",
    "again",
    "against",
    "scaled",
    "nearly again",
    "inside the span",
    "nearly inside",
    "tiny",
    "huge",
    "denormal",
    "zero",
    "one entry",
    "one layer",
    "equal entries",
    "whole numbers",
]
