"""The exact size of a full memory, and an estimate of the time of a step with it."""

from dataclasses import dataclass

from sfao.cost.axes_work import AxesHolding
from sfao.cost.calibration import Calibration, calibrate
from sfao.cost.cases import Subject
from sfao.cost.direction_work import DirectionHolding
from sfao.cost.gate_work import Holding
from sfao.cost.training import Setting
from sfao.gating.budget import MemoryPlan
from sfao.gating.options import GateOptions
from sfao.optim._planning import plan_options
from sfao.optim.layers import layer_groups

#: The holding of each memory.
HOLDINGS: dict[str, type[AxesHolding] | type[DirectionHolding]] = {
    kind.memory: kind for kind in (AxesHolding, DirectionHolding)
}


@dataclass(frozen=True)
class Estimate:
    """The cost of a gate that softens or projects at every step, the most it can do, on top of a step of SGD."""

    parameters: int
    layers: int
    holding: Holding
    #: The plan for a memory budget, in words.
    plan: str | None
    memory_bytes: int
    workspace_bytes: int
    calibration: Calibration
    gate_ms: float

    @property
    def step_ms(self) -> float:
        return self.calibration.sgd_ms + self.gate_ms

    @property
    def times_sgd(self) -> float:
        return self.step_ms / self.calibration.sgd_ms


def choose_holding(
    of: Subject, options: GateOptions, memory_budget: str | int | None
) -> tuple[Holding, MemoryPlan | None]:
    """Return the way to hold axes or directions; raise a ValueError for an option that breaks its rule."""
    chosen, plan = plan_options(layer_groups(of.outline()), memory_budget, options)
    return HOLDINGS[chosen["memory"]].of(chosen), plan


def estimate(of: Subject, options: GateOptions, memory_budget: str | int | None, setting: Setting) -> Estimate:
    """Predict gate = overhead + work / pace, the work counted from the shapes of the layers."""
    groups = layer_groups(of.outline())
    holding, plan = choose_holding(of, options, memory_budget)
    size = holding.count_bytes(groups)
    layers = [[tuple(parameter.shape) for parameter in group["params"]] for group in groups]
    calibration = calibrate(of, layers, holding, setting)
    at_work = sum(pace.ms(holding.count_work(shapes)) for shapes in layers for pace in calibration.paces)
    return Estimate(
        parameters=sum(parameter.numel() for group in groups for parameter in group["params"]),
        layers=len(layers),
        holding=holding,
        plan=None if plan is None else str(plan),
        memory_bytes=size.held,
        workspace_bytes=size.workspace,
        calibration=calibration,
        gate_ms=calibration.overhead_ms + at_work,
    )
