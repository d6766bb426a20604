"""A short calibration of this machine: the time of the gate's calls, of its work, and of a step of SGD.

Real gates on layers made up for it. Layers of next to no work, as many as the model has, show what the calls cost; a
layer as large as the model's largest shows how fast the work is done.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from sfao.cost.cases import Subject
from sfao.cost.gate_work import Holding, Pace, Shapes
from sfao.cost.measuring import Effort, Step, time_steps, wait_for
from sfao.cost.training import Setting, training_step

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
    #: The speed of the work, one for each kind of it.
    paces: list[Pace]
    #: Of the whole calibration.
    seconds: float


def calibrate(of: Subject, layers: Sequence[Shapes], holding: Holding, setting: Setting) -> Calibration:
    """Measure for some seconds, everything in turns."""
    began = time.perf_counter()
    tiny = [holding.shrink(shapes) for shapes in layers]
    steps = {"overhead": gate_step(tiny, holding, setting.device)}
    samples = {}
    for kind, (large, held) in holding.choose_samples(layers).items():
        small = held.shrink(large)
        samples[kind] = held.count_work(large), held.count_work(small)
        steps[f"{kind} large"] = gate_step([large], held, setting.device)
        steps[f"{kind} small"] = gate_step([small], held, setting.device)
    batches = _batches(of, setting)
    steps |= {f"batch {size}": step for size, step in batches.items()}
    ms = {name: timing.ms for name, timing in time_steps(steps, EFFORT, setting.device).items()}
    paces = [
        Pace.through(kind, (more, ms[f"{kind} large"]), (less, ms[f"{kind} small"]))
        for kind, (more, less) in samples.items()
    ]
    at_work = sum(pace.ms(holding.count_work(shapes)) for shapes in tiny for pace in paces)
    sgd = {size: ms[f"batch {size}"] for size in batches}
    return Calibration(
        sgd_ms=extrapolate_time(sgd, setting.batch_size),
        extrapolated_from=None if setting.batch_size in sgd else max(sgd),
        overhead_ms=max(ms["overhead"] - at_work, 0.0),
        paces=paces,
        seconds=time.perf_counter() - began,
    )


def gate_step(layers: Sequence[Shapes], holding: Holding, device: torch.device) -> Step:
    """Return a step of a full gate that projects or softens the gradients of made-up layers."""
    generator = torch.Generator(device).manual_seed(0)
    groups = []
    for number, shapes in enumerate(layers):
        params = [nn.Parameter(torch.randn(shape, device=device, generator=generator)) for shape in shapes]
        for parameter in params:
            parameter.grad = torch.randn(parameter.shape, device=device, generator=generator)
        groups.append({"params": params, "name": str(number)})
    gate = holding.make_gate(groups, device)

    def step() -> None:
        gate.apply()

    return step


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
