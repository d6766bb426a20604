"""The reference twin: SFAO as the paper writes it, in float64, one layer and one direction after the other.

Nothing here is fast, cached or clever, and nothing of the fast path is used but the two places where chance
comes in (which directions are sampled, which slot a newcomer takes) and the rule, a function of two numbers: tests
step both side by side.
"""

from math import exp
from typing import Any

import torch
from scipy.optimize import nnls
from torch import Tensor

from sfao.gating._layout import lay_out
from sfao.gating.cosine_rule import Sampler
from sfao.gating.decision import Decision
from sfao.gating.eviction import EVICTIONS, Slots
from sfao.gating.projection import SMALLEST_SINGULAR_VALUE
from sfao.gating.rules import RULES
from sfao.gating.softness import HARDEST, SOFTEST
from sfao.gating.storage import MEMORY_DTYPES


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
        self.rule = RULES[options["rule"]]
        self.rule_state = self.rule.initial_state()
        self.directions: list[Tensor] = []
        self.slots = Slots()
        self.momentum: Tensor | None = None
        self.update = torch.zeros(0, dtype=torch.float64)

    def gradient(self) -> Tensor:
        nothing = torch.zeros(0, dtype=torch.float64)
        return torch.cat([nothing, *(p.grad.flatten().double() for p in self.parameters if p.grad is not None)])

    def decide(self, gradient: Tensor) -> Decision | None:
        if not gradient.any():
            return None
        if not self.directions:
            return Decision.ACCEPT
        sampled: list[int] = torch.arange(len(self.directions))[self.draw()].tolist()
        cosines = [self.cosine(gradient, self.directions[i]) for i in sampled]
        s = max(abs(c) for c in cosines) if self.options["cosine"] == "absolute" else max(cosines)
        accepts, projects, *state = self.rule.judge(s, min(cosines), *self.rule.numbers(self.options), *self.rule_state)
        self.rule_state = tuple(state)
        return Decision.ACCEPT if accepts else Decision.PROJECT if projects else Decision.DISCARD

    def draw(self) -> Tensor | slice:
        return self.sampler.draw(len(self.directions), self.options["samples"])

    @staticmethod
    def cosine(a: Tensor, b: Tensor) -> float:
        a, b = a / a.abs().max(), b / b.abs().max()
        return min(max(float(a @ b / (a.norm() * b.norm())), -1.0), 1.0)

    def gate(self, gradient: Tensor, decision: Decision | None) -> Tensor:
        if decision is Decision.ACCEPT:
            return gradient
        if decision is Decision.PROJECT:
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

    def step(self) -> dict[str, Decision]:
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

    def risk(self) -> float:
        """Return the max over layers and directions of (-<g, u>)_+."""
        return max(
            (max(0.0, float(-d @ layer.update)) for layer in self.layers.values() for d in layer.directions),
            default=0.0,
        )


def soften(gradient: Tensor, second_moment: Tensor, share: float, restore: float) -> tuple[Tensor, float]:
    """Return the softened gradient of a layer's matrix [dW | db] and the share of its length that was left.

    u = G r (r I + A)^-1 with A in units of its mean, and the smallest r, by bisection, that leaves the share.
    """
    width = len(second_moment)
    unit = second_moment * (width / second_moment.trace())
    identity = torch.eye(width, dtype=torch.float64)

    def leave(logarithm: float) -> Tensor:
        r = exp(logarithm)
        solved: Tensor = torch.linalg.solve(r * identity + unit, gradient.T)
        return r * solved.T

    low, high = HARDEST, SOFTEST
    if leave(low).norm() >= share * gradient.norm():
        high = low
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if leave(middle).norm() < share * gradient.norm() else (low, middle)
    update = leave(high)
    left = float(update.norm() / gradient.norm())
    return update * max(1.0, min(1 / left, restore)), left


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
