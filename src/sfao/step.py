"""One step of the gate: measure the gradients of all layers, decide, and turn each gradient into its update."""

from collections.abc import Sequence
from math import hypot
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo

from sfao.decision import Decision, Outcome, decide
from sfao.distributed import full_tensor, shard_like
from sfao.graph_step import run_graphs
from sfao.layers import Layer, check_model
from sfao.memory.memory import check_norm, find_scale, full_precision, measure_norms, write_matrix
from sfao.options import OPTIONS, check_options, read_options
from sfao.projection import Projection
from sfao.state import check_fingerprints

if TYPE_CHECKING:
    from sfao.gate import Gate

EPSILON = torch.finfo(torch.float32).eps
# Rounding may leave this much of a stored direction in the projected gradient, relative to its norm.
ORTHOGONALITY = 5e-6
# Below this, |u| / |g| can't be told from |g|^2 - |u|^2.
ROUNDED_AWAY = 0.01
# Multiplications that take no longer than the few calls around them.
SMALL_WORK = 2**20


# torch.compile compiles the step around the gate. Tracing the gate itself takes minutes and gains nothing.
@_disable_dynamo
def apply_gate(gate: "Gate", groups: Sequence[dict[str, Any]]) -> None:
    """Turn the gradient g of every layer into its update u, in place.

    Args:
        gate: the gate.
        groups: the param groups of the optimizer.
    """
    members = [id(parameter) for group in groups for parameter in group["params"]]
    if members != gate.checked_members:
        check_model(gate)
        gate.checked_members = members
    for layer in gate.layers:
        if read_options(layer.options) != layer.checked_options:  # a schedule, say, has changed them
            check_options(layer.options)
            before = dict(zip(OPTIONS, layer.checked_options, strict=True))
            for name in ("storage", "rank", "memory_dtype"):
                if layer.options[name] != before[name]:
                    raise ValueError(f"`{name}` is fixed at {before[name]!r} once a layer is made, got another value")
            layer.checked_options = read_options(layer.options)
    if gate.fingerprints:
        check_fingerprints(gate)
    device = gate.param_groups[0]["params"][0].device.type
    with full_precision(device):
        steps = read_gradients(gate)
        if device != "cuda" or not run_graphs(gate, steps):
            set_norms(steps)
            compare_and_decide(steps)
            project([step for step in steps if step.decision is Decision.PROJECT])
    last = Outcome()
    for step in steps:
        name, layer = step.layer.name, step.layer
        layer.counts[step.decision or "zero"] += 1
        if step.decision is Decision.DISCARD:
            step.clear()
        if step.decision is not None:
            last.decisions[name] = step.decision
        if step.cosine is not None:
            layer.sampler.turn += step.sample is not None
            last.cosines[name], last.kept[name], last.samples[name] = step.cosine, step.kept, step.sample
        if gate.is_sharded:
            for parameter, gradient in zip(layer.parameters, step.gradients, strict=True):
                parameter.grad = None if gradient is None else shard_like(gradient, parameter)
    gate.last = last


def read_gradients(gate: "Gate") -> list["LayerStep"]:
    """Return the layers that have gradients; raise an error if a layer has none because its module was replaced."""
    found = []
    for layer in gate.layers:
        gradients = [parameter.grad for parameter in layer.parameters]
        if gate.is_sharded:
            gradients = [None if gradient is None else full_tensor(gradient) for gradient in gradients]
        step = LayerStep(layer, gradients)
        if step.present:
            found.append(step)
    names = [step.layer.name for step in found]
    if len(found) < len(gate.layers) and names != gate.with_gradient:
        check_model(gate)
        gate.with_gradient = names
    return found


def set_norms(steps: Sequence["LayerStep"]) -> None:
    """Measure the norm of every layer; raise a NonFiniteGradient that names the first that isn't finite."""
    norms = iter(fetch(measure_norms([gradient for step in steps for gradient in step.present])))
    for step in steps:
        step.norm = check_norm(step.layer.name, step.present, hypot(*[next(norms) for _ in step.present]))
        step.scale = find_scale(step.norm)


def compare_and_decide(steps: Sequence["LayerStep"]) -> None:
    """Compare every layer with sampled directions, and decide; one transfer from the device."""
    found = [step.compare() if step.norm > 0 and len(step.memory) else () for step in steps]
    dots = iter(fetch([dot for extremes in found for dot in extremes]))
    for step, extremes in zip(steps, found, strict=True):
        step.decide(*[next(dots) for _ in extremes])


def fetch(numbers: Sequence[Tensor]) -> list[float]:
    """Return numbers from the device, at once; layers may be on several devices."""
    if not numbers or numbers[0].device.type == "cpu":
        return [number.item() for number in numbers]
    found: list[float] = torch.stack([n.to(numbers[0].device, torch.float64) for n in numbers]).tolist()
    return found


def project(steps: Sequence["LayerStep"]) -> None:
    """Project the gradients of these layers off their directions, in place; one transfer from the device."""
    plans = [(step, *plan) for step in steps if (plan := step.plan_projection()) is not None]
    numbers = iter(fetch([size for *_, weights, removed in plans for size in (removed, weights.abs().sum())]))
    for step, projection, weights, _ in plans:
        is_rough = step.set_kept(projection, next(numbers), next(numbers))
        step.project(projection, None if is_rough else weights)


def measure_risk(gate: "Gate", *, sampled: bool) -> float:
    """Return R(u; C), the largest (-<b, u>)_+ over unit directions b (equation 2) and over layers.

    C are all directions, or those sampled at the last step. The update u is read from `.grad`.
    """
    risks = [0.0]
    with full_precision(gate.param_groups[0]["params"][0].device.type):
        steps = read_gradients(gate)
        if not steps:
            raise RuntimeError("risk() reads the update that step() left in `.grad`; call it before zero_grad()")
        set_norms(steps)
        for step in steps:
            if step.norm > 0 and len(step.memory):
                matrices = step.memory.as_matrices(step.gradients, step.scale)
                index = gate.last.samples.get(step.layer.name) if sampled else None
                extremes = step.memory.extreme_dots(step.memory.dots(matrices, index), index, step.active)
                risks.append(-float(extremes[0]) / step.scale if extremes else 0.0)
    return max(risks)


class LayerStep:
    """The gradient of one layer at one step.

    Args:
        layer: the layer.
        gradients: by parameter, None where there is none.
    """

    #: The inner products with sampled directions, or with all.
    dots: Tensor

    def __init__(self, layer: Layer, gradients: Sequence[Tensor | None]) -> None:
        self.layer, self.memory, self.gradients = layer, layer.memory, gradients
        self.present = [gradient for gradient in gradients if gradient is not None]
        if any([gradient.layout != torch.strided for gradient in self.present]):  # noqa: C419, quicker than a generator
            raise ValueError(f"the gradient of layer {layer.name!r} must be dense, got a sparse tensor")
        self.active = tuple([gradient is not None for gradient in gradients])
        #: |g|; the factor that brings a gradient of extreme size to norm 1; |u| / |g|.
        self.norm, self.scale, self.kept = 0.0, 1.0, 1.0
        self.decision: Decision | None = None
        #: The cosine that is compared with the thresholds.
        self.cosine: float | None = None
        #: The sampled directions, None for all.
        self.sample: Tensor | None = None
        self.has_all_dots = True
        #: The scaled gradients in float32 or float64; they share memory with the gradients where they can.
        self.matrices: list[Tensor | None] = []

    def compare(self) -> tuple[Tensor, ...]:
        """Return the least and the greatest inner product with a sampled unit direction; nothing if all are zero."""
        memory, samples, count = self.memory, self.layer.options["samples"], len(self.memory)
        self.matrices = memory.as_matrices(self.gradients, self.scale)
        self.sample = sample = self.layer.sampler.peek(count, samples)
        # Products with everything serve the projection too.
        is_cheap = count * memory.size <= SMALL_WORK or count <= 2 * samples
        self.has_all_dots = sample is None or is_cheap
        self.dots = dots = memory.dots(self.matrices, None if is_cheap else sample)
        return memory.extreme_dots(dots[sample] if sample is not None and is_cheap else dots, sample, self.active)

    def decide(self, *dots: float) -> None:
        """Decide, given the result of `compare`; a zero gradient has no decision."""
        if self.norm == 0:
            return
        self.decision, self.kept, options = Decision.ACCEPT, 1.0, self.layer.options
        if len(self.memory):
            # Rounding can push a cosine past the ends, where no threshold may see it. Without a direction, all agree.
            norm = self.norm * self.scale
            smallest, largest = [min(max(dot / norm, -1.0), 1.0) for dot in dots] or (1.0, 1.0)
            self.cosine = max(largest, -smallest) if options["cosine"] == "absolute" else largest
            thresholds = options["accept_above"], options["discard_below"]
            self.decision = decide(self.cosine, smallest, *thresholds, options["strict"])

    def clear(self) -> None:
        """Set the gradient to zero."""
        self.kept = 0.0
        torch._foreach_zero_(self.present)

    def plan_projection(self) -> tuple[Projection, Tensor, Tensor] | None:
        """Return the projection, the weights of the directions, and |g|^2 - |u|^2.

        If the directions span everything, clear the gradient and return None.
        """
        projection = self.memory.projection(self.layer.options["projection"], self.active)
        if projection.rank >= sum([gradient.numel() for gradient in self.present]):
            self.clear()
            return None
        dots = self.dots if self.has_all_dots else self.memory.dots(self.matrices)
        weights = projection.weights(dots)
        return projection, weights, projection.removed_square(dots, weights)

    def project(self, projection: Projection, weights: Tensor | None = None) -> None:
        """Subtract the weighted directions from the gradient; without weights, compute them, all in float64."""
        matrices, is_rough = self.matrices, weights is None
        if weights is None:
            matrices = [None if matrix is None else matrix.double() for matrix in matrices]
            weights = projection.weights(self.memory.dots(matrices))
        self.memory.subtract_(matrices, weights)
        if is_rough and self.kept < ROUNDED_AWAY:
            left = [float(torch.linalg.vector_norm(matrix)) for matrix in matrices if matrix is not None]
            self.kept = hypot(*left) / (self.norm * self.scale)
        places = zip(matrices, self.gradients, self.memory.channels_last, strict=True)
        for matrix, gradient, channels_last in places:
            if gradient is not None and matrix is not None:
                write_matrix(matrix, gradient, channels_last, self.scale)

    def set_kept(self, projection: Projection, removed: float, size: float) -> bool:
        """Set |u| / |g|, given |g|^2 - |u|^2; return True if float32 would leave too much along the directions.

        Rounding is as large as the weights (`size`). It must be small against the rest of the gradient, which it isn't
        if directions are nearly dependent and the gradient is nearly inside their span.
        """
        norm = self.norm * self.scale
        left = float(max(norm**2 - removed, 0.0)) ** 0.5
        self.kept = left / norm
        is_rough = left == 0 or EPSILON * (norm + size) / left > ORTHOGONALITY
        return projection.is_orthogonal and self.present[0].dtype != torch.float64 and is_rough
