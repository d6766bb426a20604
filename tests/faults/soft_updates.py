"""Random layers, inputs, options and gradients, softened beside the reference twin of the subspace memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from sfao import SFAO, Gate, layer_groups
from sfao.gating.softness import NOTHING
from sfao.gating.subspace import Subspace
from sfao.optim.reference_subspace import ReferenceSpace
from tests.faults.soft_layers import INPUTS, LAYERS, SideBySide, read_matrix, unfold, write_gradient

TASKS, STEPS = 3, 5
#: By dtype: how far rounding may take an update from the twin's, relative to the longest that the gradient may become.
ROUNDING = {torch.float64: 1e-6, torch.float32: 2e-5, torch.bfloat16: 2e-2}
#: The softness is interpolated, and found to less than 1 %: what is kept along an axis is as near.
SOFTNESS = 5e-3
#: How far axes and moments may be from those of A, relative to its largest: products of inputs are in float32.
OF_AXES = 1e-5
#: Second moments below this, relative to the largest, are no axes: that is rounding.
NO_AXIS = 1e-8

OPTIMIZERS = {
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.05, weight_decay=0.1),
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
}
GRADIENTS = {
    "random": lambda noise, along, off: noise,
    "along the axes": lambda noise, along, off: along,
    "off the axes": lambda noise, along, off: off,
    "nearly along": lambda noise, along, off: along + 1e-2 * off,
    "nearly off": lambda noise, along, off: off + 1e-2 * along,
    "huge": lambda noise, along, off: 1e12 * noise,
    "tiny": lambda noise, along, off: 1e-12 * noise,
    "zero": lambda noise, along, off: 0 * noise,
    "one row": lambda noise, along, off: noise * (torch.arange(len(noise)) == 0)[:, None],
}


class SoftCase:
    """One gated optimizer over a few layers, and one twin for each of them."""

    def __init__(self, seed: int) -> None:
        self.seed, self.random = seed, Random(seed)
        self._generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        r = self.random
        self.dtype = r.choice([torch.float32, torch.float32, torch.float64, torch.bfloat16])
        layers: list[Any] = [r.choice(LAYERS)() for _ in range(r.randint(1, 3))]
        for layer in layers:  # adapters begin at zero
            nn.init.zeros_(layer.weight) if r.random() < 0.1 else None
        self.model = SideBySide(layers).to(self.dtype)
        self.options = {
            "keep": r.choice([0.0, 1e-3, 0.2, 0.6, 0.6, 0.95, 1.0]),
            "tolerance": r.choice([0.01, 0.15, 2.0]),
            "restore": r.choice([1.0, 2.0, 50.0]),
            "axes": r.choice([1, 2, 4, 200]),
        }
        self.behind = r.choice([None, None, *OPTIMIZERS])
        self.lr, self.momentum, self.decay = r.choice([0.01, 0.3]), r.choice([0.0, 0.9]), r.choice([0.0, 0.1])
        groups = layer_groups(self.model)
        if self.behind is None:
            descent = {"lr": self.lr, "momentum": self.momentum, "weight_decay": self.decay}
            self.optimizer: Any = SFAO(groups, **descent, **self.options)
            self.gate = self.optimizer.gate
        else:
            self.optimizer = OPTIMIZERS[self.behind](self.model.parameters())
            self.gate = Gate(groups, **self.options).attach(self.optimizer)
            self._plain = [parameter.detach().clone() for parameter in self.model.parameters()]
            self._alone = OPTIMIZERS[self.behind](self._plain)
        self.twins = [ReferenceSpace(len(layer.weight), read_matrix(layer).shape[1]) for layer in layers]
        self._buffers: list[Tensor | None] = [None] * len(layers)
        self._inputs: list[Tensor] = []
        self._tells_rows = r.random() < 0.5
        self.label = f"seed {seed}, {self.dtype}, {self.options}, behind {self.behind}"

    # -- Tasks -----------------------------------------------------------------------------------------

    def end_task(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Consolidate inputs of some kind; yield checks of what is held of them, and let the twins hold that."""
        kind, examples = self.random.choice(list(INPUTS)), self.random.choice([1, 3, 20])
        inputs = [self._draw_inputs(layer, kind, examples, number) for number, layer in enumerate(self.model.layers)]
        self._inputs = inputs
        batch = {f"x{number}": of_layer for number, of_layer in enumerate(inputs)}
        rows = [sorted(self.random.sample(range(t.rows), self.random.randint(1, t.rows))) for t in self.twins]

        def look_at_rows(model: nn.Module, batch: Any) -> Tensor:
            outputs = [out.movedim(-1 if out.ndim == 2 else 1, 0) for out in model(**batch)]
            return torch.stack([out[of].sum() for out, of in zip(outputs, rows, strict=True)]).sum()

        batches = [({name: x[i : i + 1] for name, x in batch.items()}) for i in range(examples)]
        (self.optimizer if self.behind is None else self.gate).consolidate(
            self.model, batches, objective=look_at_rows if self._tells_rows else None
        )
        for number, (layer, twin, of) in enumerate(zip(self.model.layers, self.twins, rows, strict=True)):
            (space,) = self.gate.layers[number].spaces
            moment = twin.add_moment(unfold(layer, inputs[number]), examples)
            label = f"{self.label}, inputs {kind}, layer {number}"
            yield label, partial(check_axes, space, moment, int(self.options["axes"]))
            twin.hold(space.plain_axes, space.moments, space.mean_moment)
            used = torch.zeros(twin.rows, dtype=torch.bool)
            used[of if self._tells_rows else slice(None)] = True
            twin.end_task(read_matrix(layer), space.state_dict()["probes"], used)
            self._buffers[number] = None

    def _draw_inputs(self, layer: Any, kind: str, examples: int, number: int) -> Tensor:
        shape = (layer.in_features,) if isinstance(layer, nn.Linear) else (layer.in_channels, *[3] * len(layer.stride))
        noise = torch.randn(examples, *shape, generator=self._generator)
        before = self._inputs[number].float() if self._inputs else noise
        before = before[torch.arange(examples) % len(before)]
        return INPUTS[kind](noise, before).to(self.dtype)

    # -- Steps -----------------------------------------------------------------------------------------

    def step(self) -> "Iterator[SoftOutcome]":
        """Step both; yield what became of each layer."""
        kind = self.random.choice(list(GRADIENTS))
        gradients = [self._draw_gradient(kind, twin) for twin in self.twins]
        for layer, gradient in zip(self._layers, gradients, strict=True):
            write_gradient(layer, gradient)
        given = [read_matrix(layer, "grad").double() for layer in self._layers]
        before = [read_matrix(layer).double() for layer in self._layers]
        wanted = given if self.behind is None else self._step_alone()
        self.optimizer.step()
        paths, drifts, kept = self.gate.paths, self.gate.drifts, self.gate.kept()
        for number, (layer, twin) in enumerate(zip(self._layers, self.twins, strict=True)):
            name = self.gate.layers[number].name
            if not len(twin.axes):  # nothing was seen of its inputs
                continue
            twin.begin_way(before[number])
            share = twin.choose_share(self.options["keep"], self.options["tolerance"], before[number])
            update, left = twin.soften(wanted[number], share, self.options["restore"])
            moved = read_matrix(layer).double() - before[number]
            found = moved if self.behind is not None else read_matrix(layer, "grad").double()
            step = found if self.behind is not None else self._descend(number, found, before[number])
            twin.travel(float(step.norm()))
            yield SoftOutcome(
                f"{self.label}, {kind}, layer {number}",
                wanted[number],
                found,
                update,
                (kept[name], left),
                (drifts[name], twin.measure_drift(before[number])),
                (paths[name], twin.path),
                float(self.options["restore"]),
                self.dtype,
                before[number],
                twin,
                share,
            )
            twin.path = paths[name]

    @property
    def _layers(self) -> list[Any]:
        return list(self.model.layers)

    def _draw_gradient(self, kind: str, twin: ReferenceSpace) -> Tensor:
        noise = torch.randn(twin.rows, twin.width, generator=self._generator, dtype=torch.float64)
        along = noise @ twin.axes.T @ twin.axes
        return GRADIENTS[kind](noise, along, noise - along)

    def _step_alone(self) -> list[Tensor]:
        """Return what the optimizer would add to each layer on its own."""
        for plain, parameter in zip(self._plain, self.model.parameters(), strict=True):
            plain.copy_(parameter.detach())
            plain.grad = parameter.grad.clone() if parameter.grad is not None else None
        before = [plain.clone() for plain in self._plain]
        self._alone.step()
        moved = iter([plain.double() - old.double() for plain, old in zip(self._plain, before, strict=True)])
        return [
            torch.cat([next(moved).reshape(len(layer.weight), -1) for _ in layer.parameters()], 1)
            for layer in self._layers
        ]

    def _descend(self, number: int, update: Tensor, weight: Tensor) -> Tensor:
        """Return what the parameters move by: the momentum of updates with their decay, or the update without."""
        if not self.momentum:
            return self.lr * update
        step, before = update + self.decay * weight, self._buffers[number]
        self._buffers[number] = moved = step if before is None else self.momentum * before + step
        return self.lr * moved


@dataclass
class SoftOutcome:
    """What became of what was to be softened in one layer; pairs are those of the gate and of the twin."""

    label: str
    gradient: Tensor
    update: Tensor
    twin_update: Tensor
    kept: tuple[float, float]
    drifts: tuple[float, float]
    paths: tuple[float, float]
    restore: float
    dtype: torch.dtype
    weight: Tensor
    twin: ReferenceSpace
    share: float

    def check(self) -> None:
        """Raise an AssertionError if update, share, drift or path are not the twin's, up to rounding."""
        length = float(self.gradient.norm())
        rounding = ROUNDING[self.dtype]
        longest = length * max(1.0, min(self.restore, 1 / max(self.kept[1], NOTHING)))
        gap = float((self.update - self.twin_update).norm())
        if not self._is_tie:
            # Where an optimizer moves parameters, they are rounded to their own grid.
            grid = torch.finfo(self.dtype).eps * float(self.weight.norm())
            assert gap <= (rounding + SOFTNESS) * longest + grid, f"{gap / max(longest, 1e-300):.1e} away"
            assert abs(self.kept[0] - self.kept[1]) <= rounding + SOFTNESS, f"kept {self.kept}"
        if self.share not in (0.0, 1.0) and length:
            assert self.kept[0] >= self.share - rounding - SOFTNESS, f"kept {self.kept}, {self.share} were wanted"
        # Axes in float32 are orthonormal to 1e-7: so well is known what is left of a squared length.
        known = rounding + 4e-7 / max(self.kept[1], NOTHING) ** 2
        grid = torch.finfo(self.dtype).eps * float(self.weight.norm()) / (self.twin.size or 1.0)
        assert abs(self.paths[0] - self.paths[1]) <= known * self.paths[1] + grid, f"paths {self.paths}"
        # Outputs for probes are products in float32, of weights that may be long where their answers are not.
        answered = float(self.weight.norm() * self.twin.probes.norm()) / self.twin.answer_size
        allowed = 1e-6 * (answered + self.drifts[1])
        assert abs(self.drifts[0] - self.drifts[1]) <= allowed, f"drifts {self.drifts}, {allowed:.1e} allowed"

    @property
    def _is_tie(self) -> bool:
        """True if what is left is on the edge of nothing, or rounding alone."""
        return self.kept[1] < 2 * NOTHING and self.kept[0] < 2 * NOTHING + ROUNDING[self.dtype]


def check_axes(space: Subspace, moment: Tensor, axes: int) -> None:
    """Raise an AssertionError unless the space holds the leading axes of this second moment, and no others."""
    held, moments = space.plain_axes.double(), space.moments
    expected = torch.linalg.eigvalsh(moment).flip(0)
    largest = float(expected[0])
    allowed = OF_AXES * largest
    there = int((expected > NO_AXIS * largest).sum())
    assert len(held) <= min(axes, there), f"{len(held)} axes, where inputs have {there}, and {axes} are wanted"
    assert abs(space.mean_moment - float(moment.trace()) / len(moment)) <= allowed, "the mean is another"
    known = torch.cat([moments, moments.new_zeros(len(expected))])[: min(axes, len(expected))]
    assert float((known - expected[: len(known)]).abs().max()) <= allowed, f"moments {known}, not {expected}"
    if len(held):
        unit = held @ held.T - torch.eye(len(held), dtype=torch.float64)
        assert float(unit.abs().max()) < 1e-5, "axes are not orthonormal"
        assert float((held @ moment - moments[:, None] * held).norm(dim=1).max()) <= 10 * allowed, "these are no axes"
