"""The reference twin: SFAO as the paper writes it, in float64, one layer and one direction after the other.

Nothing here is fast or cached, and nothing is imported from the package. Tests step both side by side. Random draws
follow the same generators: SplitMix64 for samples, `torch.Generator` for evictions.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from scipy.optimize import nnls
from torch import Tensor

ACCEPT, PROJECT, DISCARD = "accept", "project", "discard"
#: Singular values of the unit directions that are not larger are rounding of the float32 they are stored in.
SMALLEST_SINGULAR_VALUE = 3e-6
MEMORY_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

# -- Matrices of a layer ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """Parameters side by side as one matrix: parameter p has `columns[p]` columns.

    A Linear layer is [dW | db]; a convolution is out x (in * k * k + 1); vectors without a weight are one row.
    """

    rows: int
    columns: tuple[int, ...]

    @property
    def width(self) -> int:
        return sum(self.columns)

    @property
    def size(self) -> int:
        return self.rows * self.width


def lay_out(shapes: Iterable[Sequence[int]]) -> list[Layout]:
    """Group consecutive parameters into matrices: a weight with the vectors that go with its rows.

    A weight joins the matrix before it only directly after a weight of the same height, as in an LSTM. Vectors that
    go with no weight share one row.
    """
    found: list[Layout] = []
    after_weight = False
    for shape in shapes:
        is_weight = len(shape) >= 2
        last = found[-1] if found else Layout(0, ())
        if is_weight:
            joins = after_weight and last.rows == shape[0]
        else:
            joins = last.rows == 1 or (last.rows > 1 and last.rows == prod(shape))
        rows = last.rows if joins else shape[0] if is_weight else 1
        own = Layout(rows, (*(last.columns if joins else ()), prod(shape) // max(rows, 1)))
        found[len(found) - joins :] = [own]
        after_weight = is_weight
    return found


# -- Random draws -------------------------------------------------------------------------------------------


class Sampler:
    """Draws directions, uniformly, without replacement. A draw depends on the seed and the number of draws before."""

    def __init__(self, seed: int) -> None:
        self.seed = seed % 2**63
        self.turn = 0

    def draw(self, count: int, samples: int) -> list[int]:
        """Return `samples` different numbers below `count`; all of them if there are no more."""
        if samples >= count:
            return list(range(count))
        self.turn += 1
        return draw_distinct(self.seed, self.turn - 1, count, samples)


def draw_distinct(seed: int, turn: int, count: int, samples: int) -> list[int]:
    """Return `samples` different numbers below `count`, all sets equally likely (Floyd 1987)."""
    chosen: list[int] = []
    for place, largest in enumerate(range(count - samples, count)):
        drawn = number_below(seed, turn, place, largest + 1)
        chosen.append(largest if drawn in chosen else drawn)
    return chosen


def number_below(seed: int, turn: int, place: int, bound: int) -> int:
    """Return a pseudorandom number from 0 to bound - 1."""
    mixed = mix(mix(seed + turn * 0x9E3779B97F4A7C15) + place)
    return ((mixed >> 32) * bound) >> 32


def mix(x: int) -> int:
    """Return the finalizer of SplitMix64 (Steele et al. 2014)."""
    x %= 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


# -- Eviction -----------------------------------------------------------------------------------------------


@dataclass
class Slots:
    """The task and the arrival of the direction in each slot, and how many directions each task has offered."""

    tasks: list[int] = field(default_factory=list)
    arrivals: list[int] = field(default_factory=list)
    offered: dict[int, int] = field(default_factory=dict)

    @property
    def total_offered(self) -> int:
        return sum(self.offered.values())

    def of_task(self, task: int) -> list[int]:
        return [slot for slot, owner in enumerate(self.tasks) if owner == task]


def draw_uniform(below: int, generator: torch.Generator) -> int:
    return int(torch.randint(below, (), generator=generator))


def fifo(slots: Slots, task: int, generator: torch.Generator) -> int | None:
    """Return the slot of the oldest direction."""
    return slots.arrivals.index(min(slots.arrivals))


def reservoir(slots: Slots, task: int, generator: torch.Generator) -> int | None:
    """Return a random slot, or None, such that every direction ever offered is kept with the same probability."""
    place = draw_uniform(slots.total_offered, generator)
    return place if place < len(slots.tasks) else None


def balanced(slots: Slots, task: int, generator: torch.Generator) -> int | None:
    """Return a slot, or None, such that every task keeps an equal share, a uniform sample of what it offered."""
    held = {owner: slots.tasks.count(owner) for owner in sorted(set(slots.tasks))}
    largest = max(held, key=held.__getitem__)
    if held.get(task, 0) < held[largest]:
        return slots.of_task(largest)[draw_uniform(held[largest], generator)]
    place = draw_uniform(slots.offered[task], generator)
    return slots.of_task(task)[place] if place < held[task] else None


EVICTIONS: dict[str, Callable[[Slots, int, torch.Generator], int | None]] = {
    "balanced": balanced,
    "fifo": fifo,
    "reservoir": reservoir,
}

# -- The optimizer ------------------------------------------------------------------------------------------


class ReferenceLayer:
    """One layer: its parameters as one float64 vector, its directions as a list of unit vectors.

    The parameters come by param group: those of different groups share no matrix. Parameters without entries have
    nothing to move and nothing to remember.
    """

    def __init__(self, groups: list[list[Tensor]], options: dict[str, Any], seed: int) -> None:
        sized = [[parameter for parameter in group if parameter.numel()] for group in groups]
        self.parameters = [parameter for group in sized for parameter in group]
        self.layouts = [layout for group in sized for layout in lay_out([p.shape for p in group])]
        self.options = options
        self.generator = torch.Generator().manual_seed(seed)
        self.sampler = Sampler(seed + 1)
        self.directions: list[Tensor] = []
        self.slots = Slots()
        self.momentum: Tensor | None = None
        self.update = torch.zeros(0, dtype=torch.float64)

    def gradient(self) -> Tensor:
        nothing = torch.zeros(0, dtype=torch.float64)
        return torch.cat([nothing, *(p.grad.flatten().double() for p in self.parameters if p.grad is not None)])

    def decide(self, gradient: Tensor) -> str | None:
        if not gradient.any():
            return None
        if not self.directions:
            return ACCEPT
        sampled = self.sampler.draw(len(self.directions), self.options["samples"])
        cosines = [self.cosine(gradient, self.directions[i]) for i in sampled]
        s = max(abs(c) for c in cosines) if self.options["cosine"] == "absolute" else max(cosines)
        return self.judge(s, min(cosines))

    def judge(self, largest: float, smallest: float) -> str:
        """Return the decision of the thresholds lambda_accept and lambda_proj.

        The paper's inequalities are strict: at -1, accepting above always accepts, discarding below never discards.
        """
        accept_above, discard_below = self.options["accept_above"], self.options["discard_below"]
        if (largest > accept_above or accept_above == -1) and (smallest >= 0 or not self.options["strict"]):
            return ACCEPT
        return PROJECT if largest > discard_below or discard_below == -1 else DISCARD

    @staticmethod
    def cosine(a: Tensor, b: Tensor) -> float:
        a, b = a / a.abs().max(), b / b.abs().max()
        return min(max(float(a @ b / (a.norm() * b.norm())), -1.0), 1.0)

    def gate(self, gradient: Tensor, decision: str | None) -> Tensor:
        if decision == ACCEPT:
            return gradient
        if decision == PROJECT:
            return PROJECTIONS[self.options["projection"]](gradient, self.sort_by_arrival())
        return torch.zeros_like(gradient)

    def sort_by_arrival(self) -> Tensor:
        order = sorted(range(len(self.directions)), key=self.slots.arrivals.__getitem__)
        return torch.stack([self.directions[i] for i in order])

    def descend(self, update: Tensor) -> None:
        """One step along the update u, as torch's SGD or the paper writes it."""
        o = self.options
        if not self.parameters:
            return
        theta = torch.cat([parameter.detach().flatten().double() for parameter in self.parameters])
        step = -update if o["maximize"] else update
        if not o["decoupled_weight_decay"]:
            step = step + o["weight_decay"] * theta
        beta = o["momentum"]
        if beta:
            before = self.momentum
            if o["momentum_form"] == "ema":
                self.momentum = (1 - beta) * step if before is None else beta * before + (1 - beta) * step
            else:
                self.momentum = step if before is None else beta * before + (1 - o["dampening"]) * step
            step = step + beta * self.momentum if o["nesterov"] else self.momentum
        shrunk = (1 - o["lr"] * o["weight_decay"]) * theta if o["decoupled_weight_decay"] else theta
        moved = shrunk - o["lr"] * step
        with torch.no_grad():
            start = 0
            for parameter in self.parameters:
                parameter.copy_(moved[start : start + parameter.numel()].view_as(parameter))
                start += parameter.numel()

    def remember(self, task: int) -> bool:
        gradient = self.gradient()
        if not gradient.any() or float(gradient.norm()) < self.options["min_norm"]:
            return False
        likeness = [self.cosine(gradient, direction) for direction in self.directions]
        if self.options["admit_below"] < 1 and likeness and max(likeness) >= self.options["admit_below"]:
            return False
        self.slots.offered[task] = self.slots.offered.get(task, 0) + 1
        full = len(self.directions) >= self.options["capacity"]
        evict = EVICTIONS[self.options["eviction"]]
        slot = evict(self.slots, task, self.generator) if full else len(self.directions)
        if slot is None:
            return False
        self.directions[slot : slot + 1] = [self.compress(gradient / gradient.norm())]
        self.slots.tasks[slot : slot + 1] = [task]
        self.slots.arrivals[slot : slot + 1] = [self.slots.total_offered]
        return True

    def compress(self, direction: Tensor) -> Tensor:
        """Return what the memory keeps of a unit direction: rounded, and of low rank where it is factored."""
        if self.options["storage"] == "factored":
            direction = self.take_low_rank(direction)
        kept = direction.to(MEMORY_DTYPES[self.options["memory_dtype"]]).double()
        unit: Tensor = kept / kept.norm()
        return unit

    def take_low_rank(self, direction: Tensor) -> Tensor:
        parts, start, rank = [], 0, self.options["rank"]
        for layout in self.layouts:
            sizes = [layout.rows * columns for columns in layout.columns]
            columns = [c.view(layout.rows, -1) for c in direction[start : start + layout.size].split(sizes)]
            matrix = torch.cat(columns, 1)
            if rank * (layout.rows + layout.width) < layout.size:
                left, values, right = torch.linalg.svd(matrix, full_matrices=False)
                matrix = left[:, :rank] * values[:rank] @ right[:rank]
            parts += [c.flatten() for c in torch.split(matrix, list(layout.columns), 1)]
            start += layout.size
        return torch.cat(parts)


class ReferenceSFAO:
    """SFAO over param groups with all options set, as `SFAO(...).param_groups` are; every parameter has a gradient."""

    def __init__(self, groups: list[dict[str, Any]], *, granularity: str = "layer", seed: int = 0) -> None:
        self.groups = groups
        self.task = 0
        if granularity == "global":
            joined = [list(group["params"]) for group in groups]
            self.layers = {"model": ReferenceLayer(joined, groups[0], seed)}
        else:
            self.layers = {
                group["name"]: ReferenceLayer([list(group["params"])], group, seed + 7919 * number)
                for number, group in enumerate(groups)
            }

    def step(self) -> dict[str, str]:
        """Take one step; return the decisions."""
        decisions = {}
        for name, layer in self.layers.items():
            gradient = layer.gradient()
            decision = layer.decide(gradient)
            layer.update = layer.gate(gradient, decision)
            layer.descend(layer.update)
            if decision:
                decisions[name] = decision
        return decisions

    def remember(self) -> int:
        return sum(layer.remember(self.task) for layer in self.layers.values())

    def end_task(self) -> None:
        self.task += 1
        for layer in self.layers.values():
            layer.momentum = None


# -- Projections --------------------------------------------------------------------------------------------


def onto_complement_of_span(gradient: Tensor, directions: Tensor) -> Tensor:
    """Return (I - V V^T) g, V the right singular vectors of the directions."""
    _, values, right = torch.linalg.svd(directions, full_matrices=False)
    basis = right[values > SMALLEST_SINGULAR_VALUE]
    return torch.sub(gradient, basis.T @ (basis @ gradient))


def one_after_the_other(gradient: Tensor, directions: Tensor) -> Tensor:
    for direction in directions:
        gradient = torch.sub(gradient, (gradient @ direction) * direction)
    return gradient


def onto_cone(gradient: Tensor, directions: Tensor) -> Tensor:
    """Return the nearest u with <u, b> >= 0 for all b: u = g + sum_i f_i b_i with the forces f >= 0 of its dual.

    Forces are held back a little: where directions cancel but for their rounding, it would take huge ones.
    """
    ridge = SMALLEST_SINGULAR_VALUE * torch.eye(len(directions), dtype=torch.float64)
    held_back = torch.cat([directions.T, ridge])
    forces, _ = nnls(held_back.numpy(), torch.cat([-gradient, torch.zeros(len(directions))]).numpy())
    return torch.add(gradient, directions.T @ torch.from_numpy(forces))


PROJECTIONS = {"span": onto_complement_of_span, "sequential": one_after_the_other, "cone": onto_cone}
