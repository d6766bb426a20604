"""A short calibration of this machine: the time of the gate's calls, of its work, and of a step of SGD.

Real gates on layers made up for it. Layers of next to no work, as many as the model has, show what the calls cost; a
layer as large as the model's largest shows how fast the work is done.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isqrt

import torch
from torch import nn

from sfao.cost.cases import Subject
from sfao.cost.filling import fill_memory
from sfao.cost.gate_work import Holding, Pace, Shapes, layer_work
from sfao.cost.measuring import Effort, Step, time_steps, wait_for
from sfao.cost.training import THRESHOLDS, Setting, training_step
from sfao.gating._layout import Layout, lay_out
from sfao.optim.gate import Gate

#: Bytes of directions that a layer made up for this holds at most, and entries it works on at least.
MOST_BYTES, LEAST_ENTRIES = 64 * 10**6, 2**22
#: Entries of directions below which a layer has next to no work as it is.
FEW_ENTRIES = 2**16
#: Seconds of a step of SGD after which no larger batch is tried.
PATIENCE = 0.2
EFFORT = Effort(turns=12, seconds=2.0, fewest=2, warm_up=2)


@dataclass(frozen=True)
class Calibration:
    sgd_ms: float
    #: The largest batch that was timed, if that was not the one asked for.
    extrapolated_from: int | None
    #: Of the gate: everything but the work, for as many layers as the model has.
    overhead_ms: float
    #: The speed of the work, one for each kind of block.
    paces: list[Pace]
    #: Of the whole calibration.
    seconds: float


def calibrate(of: Subject, layers: Sequence[Shapes], holding: Holding, setting: Setting) -> Calibration:
    """Measure for some seconds, everything in turns."""
    began = time.perf_counter()
    tiny = [tiny_layer(shapes, holding) for shapes in layers]
    steps = {"overhead": gate_step(tiny, holding, setting.device)}
    samples = {}
    for kind, layout in _largest(layers, holding).items():
        held = _reduce_holding(layout, holding)
        large = shapes_of(layout)
        small = tiny_layer(large, held)
        samples[kind] = layer_work(large, held), layer_work(small, held)
        steps[f"{kind} large"] = gate_step([large], held, setting.device)
        steps[f"{kind} small"] = gate_step([small], held, setting.device)
    batches = _batches(of, setting)
    steps |= {f"batch {size}": step for size, step in batches.items()}
    ms = {name: timing.ms for name, timing in time_steps(steps, EFFORT, setting.device).items()}
    paces = [
        Pace.through(kind, (more, ms[f"{kind} large"]), (less, ms[f"{kind} small"]))
        for kind, (more, less) in samples.items()
    ]
    at_work = sum(pace.ms(layer_work(shapes, holding)) for shapes in tiny for pace in paces)
    sgd = {size: ms[f"batch {size}"] for size in batches}
    return Calibration(
        sgd_ms=extrapolate_time(sgd, setting.batch_size),
        extrapolated_from=None if setting.batch_size in sgd else max(sgd),
        overhead_ms=max(ms["overhead"] - at_work, 0.0),
        paces=paces,
        seconds=time.perf_counter() - began,
    )


def gate_step(layers: Sequence[Shapes], holding: Holding, device: torch.device) -> Step:
    """Return a step of a full gate that projects the gradients of made-up layers."""
    generator = torch.Generator(device).manual_seed(0)
    groups = []
    for number, shapes in enumerate(layers):
        params = [nn.Parameter(torch.zeros(shape, device=device)) for shape in shapes]
        for parameter in params:
            parameter.grad = torch.randn(parameter.shape, device=device, generator=generator)
        groups.append({"params": params, "name": str(number)})
    gate = Gate(
        groups,
        capacity=holding.capacity,
        samples=holding.samples,
        **holding.storage.options,
        accept_above=THRESHOLDS["project"]["accept_above"],
        discard_below=THRESHOLDS["project"]["discard_below"],
    )
    for number, layer in enumerate(gate.layers):
        fill_memory(layer.memory, holding.capacity, device, seed=number)

    def step() -> None:
        gate.apply()

    return step


def tiny_layer(shapes: Shapes, holding: Holding) -> list[tuple[int, ...]]:
    """Return as many parameters of the same kinds, just large enough that the directions do not span them."""
    size = sum(layout.size for layout in lay_out(shapes))
    if holding.capacity >= size or holding.capacity * size <= FEW_ENTRIES:
        return list(shapes)
    side = max(isqrt(holding.capacity) + 2, 2 * holding.storage.rank + 2)
    vector = side if any(len(shape) > 1 for shape in shapes) else side**2
    tiny: list[tuple[int, ...]] = [(side, side) if len(shape) > 1 else (vector,) for shape in shapes]
    return tiny if sum(layout.size for layout in lay_out(tiny)) < size else list(shapes)


def _largest(layers: Sequence[Shapes], holding: Holding) -> dict[str, Layout]:
    """Return the largest matrix of each kind of block that there is, or one wide enough to be timed."""
    found: dict[str, Layout] = {}
    for layout in (layout for shapes in layers for layout in lay_out(shapes)):
        kind = holding.storage.make(layout).kind
        if kind not in found or layout.size > found[kind].size:
            found[kind] = layout
    return {kind: _widen(layout, -(-LEAST_ENTRIES // holding.capacity)) for kind, layout in found.items()}


def _widen(layout: Layout, entries: int) -> Layout:
    first, *others = layout.columns
    return Layout(layout.rows, (first * max(1, entries // layout.size), *others))


def _reduce_holding(layout: Layout, holding: Holding) -> Holding:
    """Return a holding of fewer directions where rows would be many bytes, with as large a share of them sampled."""
    most = max(2, MOST_BYTES // holding.storage.bytes_per_direction([layout]))
    if holding.capacity <= most:
        return holding
    sampled = max(1, round(holding.samples * most / holding.capacity))
    return replace(holding, capacity=most, samples=min(sampled, most))


def shapes_of(layout: Layout) -> list[tuple[int, ...]]:
    """Return the shapes of parameters with this layout."""
    if layout.rows == 1:
        return [(columns,) for columns in layout.columns]
    return [(layout.rows,) if columns == 1 else (layout.rows, columns) for columns in layout.columns]


def _batches(of: Subject, setting: Setting) -> dict[int, Step]:
    """Return steps of SGD by batch size: the given one or, where that takes too long, the two largest that do not."""
    model = of.build().to(setting.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    made: dict[int, Step] = {}
    size = 1
    while True:
        made[size] = training_step(model, optimizer, of, replace(setting, batch_size=size))
        wait_for(setting.device)
        start = time.perf_counter()
        made[size]()
        wait_for(setting.device)
        if size == setting.batch_size:
            return {size: made[size]}
        if time.perf_counter() - start > PATIENCE and len(made) > 1:
            return dict(list(made.items())[-2:])
        size = min(2 * size, setting.batch_size)


def extrapolate_time(sgd: dict[int, float], batch_size: int) -> float:
    """Return the time at a batch size, on the line through two others."""
    if batch_size in sgd:
        return sgd[batch_size]
    (small, shorter), (large, longer) = sorted(sgd.items())
    return longer + (longer - shorter) * (batch_size - large) / (large - small)
