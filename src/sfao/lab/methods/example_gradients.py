"""The gradients of examples, without disturbing the model: many in one pass where the model allows it."""

import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from sfao.batches import eval_mode, unwrap

#: (inputs, targets)
Pair = tuple[Tensor, Tensor]
#: loss(outputs, targets)
Loss = Callable[[Tensor, Tensor], Tensor]

#: Gradients and activations held at a time, in values (64 MB of floats).
CHUNK_VALUES = 2**24
#: Relative distance of a vectorized gradient from that of a plain backward pass.
AGREEMENT = 1e-3


@dataclass(frozen=True)
class UnitGradients:
    """Gradients of some units, numbered in the first dimension; a parameter in neither dict had none."""

    count: int
    full: Mapping[Tensor, Tensor]
    #: By weight of a Linear layer: the gradients of its outputs and its inputs, (unit x example x features).
    outer: Mapping[Tensor, tuple[Tensor, Tensor]]

    def of(self, parameter: Tensor, unit: int, weight: Tensor) -> Tensor | None:
        """Return the gradient of one parameter, which is the weight of its layer or the bias beside it."""
        if weight in self.outer:
            deltas, inputs = (side[unit] for side in self.outer[weight])
            return deltas.T @ inputs if parameter is weight else deltas.sum(0)
        return self.full[parameter][unit] if parameter in self.full else None


def take_gradients(
    model: nn.Module, batches: Iterable[Pair], loss: Loss, parameters: Sequence[Tensor]
) -> Iterator[list[Tensor | None]]:
    """Yield the gradients of the loss of each batch, None where a parameter has no part.

    The model is in eval mode meanwhile, so BatchNorm statistics stay, and `.grad` isn't touched.
    """
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    for inputs, targets in batches:
        with eval_mode(model), torch.enable_grad():
            value = loss(model(inputs), targets)
            found = iter(torch.autograd.grad(value, trainable, allow_unused=True))
        yield [next(found) if parameter.requires_grad else None for parameter in parameters]


class GradientTaker:
    """Computes the gradients of the losses of single examples, in eval mode, with `.grad` untouched.

    Examples go through torch.func together, vmap over grad. The first is also computed the plain way: a model that
    can't be vectorized, or comes out differently, is taken one example at a time.

    Args:
        model: returns logits.
        loss: of outputs and targets.
        parameters: to differentiate by.
        linear: weights of Linear layers, with their biases, whose gradients may stay outer products.
    """

    def __init__(
        self, model: nn.Module, loss: Loss, parameters: Sequence[Tensor], linear: Mapping[Tensor, Tensor | None]
    ) -> None:
        self._model = unwrap(model)  # a compiled model can't be vectorized, the one inside can
        self._loss = loss
        self._parameters = list(parameters)
        self._linear = linear
        self._can_vectorize = True
        self._first: _FirstUnit | None = None

    def find_room(self, unit: Pair) -> int:
        """Return how many examples like this one to take at once."""
        if not self._can_vectorize:
            return 1
        if self._first is None or self._first.unit[0].shape != unit[0].shape:
            self._first = self._examine(unit)
        return max(1, CHUNK_VALUES // self._first.values) if self._first.plain else 1

    def take(self, units: Sequence[Pair]) -> Iterator[UnitGradients]:
        """Yield the gradients of examples like the one that `find_room` was last asked about, in their order."""
        first = self._first
        if self._can_vectorize and first is not None and (first.linears or len(units) > 1):
            found = self._take_together(units, first)
            if found is not None:
                yield found
                return
            self._can_vectorize = False
        for gradients in take_gradients(self._model, units, self._loss, self._parameters):
            pairs = zip(self._parameters, gradients, strict=True)
            yield UnitGradients(1, {parameter: found[None] for parameter, found in pairs if found is not None}, {})

    def _examine(self, unit: Pair) -> "_FirstUnit":
        held = 0

        def count(tensor: Tensor) -> Tensor:
            nonlocal held
            held += 0 if isinstance(tensor, nn.Parameter) else tensor.numel()
            return tensor

        calls: dict[nn.Linear, list[torch.Size]] = {layer: [] for layer in self._find_linears()}
        saving = torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor)
        with hook_outputs(calls, lambda layer, _, output: calls[layer].append(output.shape)), saving:
            (gradients,) = take_gradients(self._model, [unit], self._loss, self._parameters)
        plain = {p: g for p, g in zip(self._parameters, gradients, strict=True) if g is not None}
        linears = {
            layer: found[0]
            for layer, found in calls.items()
            if len(found) == 1 and len(found[0]) == 2 and all(p in plain for p in layer.parameters())
        }
        covered = {parameter for layer in linears for parameter in layer.parameters()}
        names = {name: p for name, p in self._model.named_parameters() if p in plain and p not in covered}
        values = held + sum(tensor.numel() for tensor in unit) + sum(p.numel() for p in names.values())
        return _FirstUnit(unit, plain, linears, names, values)

    def _find_linears(self) -> list[nn.Linear]:
        """Return Linear layers with parameters of their own, which are gated together."""
        users = Counter(p for module in self._model.modules() for p in module.parameters(recurse=False))
        return [
            module
            for module in self._model.modules()
            # A subclass may do anything with its weight.
            if type(module) is nn.Linear
            and all(users[parameter] == 1 for parameter in module.parameters())
            and module.weight in self._linear
            and self._linear[module.weight] is module.bias
        ]

    def _take_together(self, pairs: Sequence[Pair], first: "_FirstUnit") -> UnitGradients | None:
        """Return the gradients of all, or None where vectorizing fails or differs from a plain backward pass."""
        try:
            units = [torch.stack(tensors) for tensors in zip(*pairs, strict=True)]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # operations that vmap takes one after the other
                found = self._differentiate(first, units, len(pairs))
        except Exception:
            # Taken one by one, the data or the loss will say what is wrong in their own words.
            return None
        return found if pairs[0] is not first.unit or _agree(found, first) else None

    def _differentiate(self, first: "_FirstUnit", units: list[Tensor], count: int) -> UnitGradients:
        """Return the gradients of units, numbered in the first dimension."""
        evaluation = _Evaluation(self._model, self._loss)

        def evaluate(values: dict[str, Tensor], taps: list[Tensor], unit: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
            with add_zero_taps(first.linears, taps) as seen:
                found = functional_call(evaluation, values, (unit,))
            return found, [seen[layer] for layer in first.linears]

        taps = [layer.weight.new_zeros(shape) for layer, shape in first.linears.items()]
        values = {f"model.{name}": parameter.detach() for name, parameter in first.names.items()}
        with eval_mode(self._model), torch.no_grad():
            gradients = grad(evaluate, argnums=(0, 1), has_aux=True)
            if count > 1:
                (full, deltas), seen = vmap(gradients, in_dims=(None, None, 0))(values, taps, units)
            else:
                (full, deltas), seen = gradients(values, taps, [unit[0] for unit in units])
        by_parameter = {p: full[f"model.{name}"].reshape(count, *p.shape) for name, p in first.names.items()}
        by_weight: dict[Tensor, tuple[Tensor, Tensor]] = {
            layer.weight: (delta.reshape(count, *shape), input_.reshape(count, len(tap), -1))
            for (layer, shape), tap, delta, input_ in zip(first.linears.items(), taps, deltas, seen, strict=True)
        }
        return UnitGradients(count, by_parameter, by_weight)


class _Evaluation(nn.Module):
    """A loss as a module, whose parameters, those of the model, torch.func can exchange."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model, self._loss = model, loss

    def forward(self, unit: Sequence[Tensor]) -> Tensor:
        inputs, targets = unit
        return self._loss(self.model(inputs), targets)


@dataclass(frozen=True)
class _FirstUnit:
    """A unit, its gradients from a plain backward pass, and how others like it can be taken together."""

    unit: Pair
    plain: Mapping[Tensor, Tensor]
    #: Linear layers that saw the unit once, as a matrix, with the shapes of their outputs.
    linears: Mapping[nn.Linear, torch.Size]
    #: All other parameters that had a gradient, by name.
    names: Mapping[str, Tensor]
    #: Values that one more unit takes.
    values: int


def _agree(found: UnitGradients, first: _FirstUnit) -> bool:
    """Return True if the first of these units has the gradients of a plain backward pass, in the same parameters."""
    weights: dict[Tensor, Tensor] = {layer.bias: layer.weight for layer in first.linears if layer.bias is not None}
    gaps, sizes = [], []
    for parameter, plain in first.plain.items():
        ours = found.of(parameter, 0, weights.get(parameter, parameter))
        if ours is None:
            return False
        gaps.append(torch.linalg.vector_norm(ours.double() - plain.double()))
        sizes.append(torch.linalg.vector_norm(plain.double()))
    gap, size = torch.stack(gaps), torch.stack(sizes)
    # A parameter whose gradient is nothing but rounding need not agree.
    return bool((gap <= AGREEMENT * (size + AGREEMENT * size.norm())).all())


@contextmanager
def add_zero_taps(layers: Collection[nn.Linear], taps: Sequence[Tensor]) -> Iterator[dict[nn.Module, Tensor]]:
    """Add zeros to the outputs of these layers, to differentiate by, and yield their inputs."""
    seen: dict[nn.Module, Tensor] = {}
    by_layer = dict(zip(layers, taps, strict=True))

    def add(layer: Any, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
        seen[layer] = arguments[0]
        return output + by_layer[layer]

    with hook_outputs(layers, add):
        yield seen


@contextmanager
def hook_outputs(layers: Iterable[nn.Module], hook: Callable[[Any, tuple[Any, ...], Tensor], Any]) -> Iterator[None]:
    """Call the hook after every call of these layers."""
    handles = [layer.register_forward_hook(hook) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
