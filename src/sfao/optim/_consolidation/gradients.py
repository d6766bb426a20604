"""The gradients of batches or examples, taken without disturbing the model: many in one pass where it allows that."""

import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from sfao.optim._consolidation.objectives import Objective, TrueLogit, find_dtype, unwrap
from sfao.optim._consolidation.trees import count_examples, find_tensors, map_tensors, move, sign, stack
from sfao.optim._sharding.backward import take_by_backward

#: Gradients and activations held at a time, in values (64 MB of floats).
CHUNK_VALUES = 2**24
#: How far the vectorised gradient of a unit may be from that of a plain backward, relative to its norm.
AGREEMENT = 1e-3


def take_gradients(
    model: nn.Module,
    batches: Iterable[Any],
    objective: Objective,
    parameters: Sequence[Tensor],
    in_shards: bool = False,
) -> Iterator[list[Tensor | None]]:
    """Yield the gradient of objective(model, batch) for each batch, None where a parameter has no part.

    The model is in eval mode meanwhile, so BatchNorm statistics stay, and `.grad` is not touched.
    """
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    if not trainable:
        raise ValueError("at least one gated parameter must require gradients to consolidate, got none")
    device, dtype = parameters[0].device, find_dtype(model)
    for batch in batches:

        def evaluate(batch: Any = batch) -> Tensor:
            value = objective(model, move(batch, device, dtype))
            if value.ndim != 0:
                raise ValueError(f"`loss` must return one number, got a tensor of shape {tuple(value.shape)}")
            return value

        # Nothing is yielded inside: whoever takes the gradients is not to run in another mode.
        with EvalMode(model), torch.enable_grad():
            found = iter(
                take_by_backward(model, evaluate, trainable)
                if in_shards
                else torch.autograd.grad(evaluate(), trainable, allow_unused=True)
            )
        yield [next(found) if parameter.requires_grad else None for parameter in parameters]


@dataclass(frozen=True)
class UnitGradients:
    """Gradients of some units, numbered in the first dimension; a parameter in neither dict had none."""

    count: int
    full: dict[Tensor, Tensor]
    #: By weight of a Linear layer: the gradients of its outputs and its inputs, (unit x example x features).
    outer: dict[Tensor, tuple[Tensor, Tensor]]

    def of(self, parameter: Tensor, unit: int, weight: Tensor) -> Tensor | None:
        """Return the gradient of one parameter, the weight of its layer or the bias beside it."""
        if weight in self.outer:
            deltas, inputs = (side[unit] for side in self.outer[weight])
            return deltas.T @ inputs if parameter is weight else deltas.sum(0)
        return self.full[parameter][unit] if parameter in self.full else None


class GradientTaker:
    """Takes the gradients of objective(model, batch), in eval mode, `.grad` untouched.

    Units of one shape go through torch.func together, vmap over grad. The first of every shape is also taken the
    plain way: a model or a loss that cannot be vectorised, or comes out otherwise, is taken one unit at a time.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        parameters: Sequence[Tensor],
        linear: Mapping[Tensor, Tensor | None],
        in_shards: bool = False,
    ) -> None:
        """`linear`: weights, with their biases, whose gradients may be left as outer products."""
        self._model = unwrap(model)  # a compiled model cannot be vectorised, what it wraps can
        self._objective = objective
        self._parameters = list(parameters)
        self._linear = linear
        self._shape: object = None
        self._first: _FirstUnit | None = None
        # Ranks that hold a model in shards take one unit after the other, together.
        self._works, self._in_shards = not in_shards, in_shards

    def room(self, batch: Any) -> int:
        """Return how many units like this one to take at once."""
        if not self._works:
            return 1
        shape = sign(batch)
        if shape != self._shape:
            self._shape, self._first = shape, self._examine(batch)
        first = self._first
        # Convolutions of batches are no faster together: the weights of each batch would count as others.
        if first is None or not self._works or not first.plain or (count_examples(batch) != 1 and first.names):
            return 1
        return max(1, CHUNK_VALUES // first.values)

    def take(self, batches: Sequence[Any]) -> Iterator[UnitGradients]:
        """Yield the gradients of units of the shape that `room` was last asked about, in their order."""
        first = self._first
        if self._works and first is not None and (first.linears or len(batches) > 1):
            found = self._take_together(batches, first)
            if found is not None:
                yield found
                return
            self._works = False
        for gradients in take_gradients(self._model, batches, self._objective, self._parameters, self._in_shards):
            pairs = zip(self._parameters, gradients, strict=True)
            yield UnitGradients(1, {parameter: found[None] for parameter, found in pairs if found is not None}, {})

    def _examine(self, batch: Any) -> "_FirstUnit":
        held = 0

        def count(tensor: Tensor) -> Tensor:
            nonlocal held
            held += 0 if isinstance(tensor, nn.Parameter) else tensor.numel()
            return tensor

        keeping = torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor)
        # An interrupt at the end of the block leaves the innermost context open: one that holds nothing.
        with _record_calls(self._plain_linears()) as calls, keeping, nullcontext():
            (gradients,) = take_gradients(self._model, [batch], self._objective, self._parameters)
        plain = {p: g for p, g in zip(self._parameters, gradients, strict=True) if g is not None}
        linears: dict[nn.Linear, torch.Size] = {
            layer: found[0]
            for layer, found in calls.items()
            if len(found) == 1 and len(found[0]) == 2 and all(p in plain for p in layer.parameters())
        }
        covered = {parameter for layer in linears for parameter in layer.parameters()}
        names = {name: p for name, p in self._model.named_parameters() if p in plain and p not in covered}
        values = held + sum(tensor.numel() for tensor in find_tensors(batch)) + sum(p.numel() for p in names.values())
        return _FirstUnit(batch, plain, linears, names, values)

    def _plain_linears(self) -> list[nn.Linear]:
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

    def _take_together(self, batches: Sequence[Any], first: "_FirstUnit") -> UnitGradients | None:
        """Return the gradients of all, or None where that cannot be had or is not what a plain backward gives."""
        try:
            units = move(stack(batches), self._parameters[0].device, find_dtype(self._model))
            with warnings.catch_warnings(), nullcontext():
                warnings.simplefilter("ignore")  # of operations that vmap has to take one after the other
                found, classes = self._differentiate(first, units, len(batches))
        except Exception:
            # Whatever is wrong with the data or the loss, taking them one by one will say it in its own words.
            return None
        if isinstance(self._objective, TrueLogit) and not self._objective.knows(units[1], classes):
            return None
        return found if batches[0] is not first.batch or _agree(found, first) else None

    def _differentiate(self, first: "_FirstUnit", units: Any, count: int) -> tuple[UnitGradients, int]:
        """Return the gradients of units, numbered in the first dimension; of logits, also the number of classes."""
        objective, classes = self._objective, 0
        evaluation = _Evaluation(self._model, objective.unchecked if isinstance(objective, TrueLogit) else objective)

        def value(values: dict[str, Tensor], nudges: list[Tensor], unit: Any) -> tuple[Tensor, list[Tensor]]:
            nonlocal classes
            with _nudge(first.linears, nudges) as seen:
                found = functional_call(evaluation, values, (unit,))
            if isinstance(objective, TrueLogit):
                found, classes = found
            return found, [seen[layer] for layer in first.linears]

        # A zero is added to the outputs of a Linear layer, so that there is something to differentiate by.
        nudges = [layer.weight.new_zeros(shape) for layer, shape in first.linears.items()]
        values = {f"model.{name}": parameter.detach() for name, parameter in first.names.items()}
        with EvalMode(self._model), torch.no_grad():
            gradients = grad(value, argnums=(0, 1), has_aux=True)
            if count > 1:
                (full, deltas), seen = vmap(gradients, in_dims=(None, None, 0))(values, nudges, units)
            else:
                (full, deltas), seen = gradients(values, nudges, map_tensors(lambda unit: unit[0], units))
        by_parameter = {p: full[f"model.{name}"].reshape(count, *p.shape) for name, p in first.names.items()}
        by_weight: dict[Tensor, tuple[Tensor, Tensor]] = {
            layer.weight: (delta.reshape(count, *shape), input_.reshape(count, len(nudge), -1))
            for (layer, shape), nudge, delta, input_ in zip(first.linears.items(), nudges, deltas, seen, strict=True)
        }
        return UnitGradients(count, by_parameter, by_weight), classes


class _Evaluation(nn.Module):
    """An objective as a module, whose parameters, those of the model, torch.func can exchange."""

    def __init__(self, model: nn.Module, objective: Callable[[nn.Module, Any], Any]) -> None:
        super().__init__()
        self.model, self._objective = model, objective

    def forward(self, unit: Any) -> Any:
        return self._objective(self.model, unit)


@dataclass(frozen=True)
class _FirstUnit:
    """A unit, its gradients from a plain backward, and how others like it can be taken together."""

    batch: Any
    plain: dict[Tensor, Tensor]
    #: Linear layers that saw the unit once, as a matrix, with the shapes of their outputs.
    linears: Mapping[nn.Linear, torch.Size]
    #: All other parameters that had a gradient, by name.
    names: Mapping[str, Tensor]
    #: What one more unit takes.
    values: int


def _agree(found: UnitGradients, first: _FirstUnit) -> bool:
    """Tell whether the first of these units has the gradients of a plain backward, and in the same parameters."""
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
def _record_calls(layers: Sequence[nn.Linear]) -> Iterator[dict[nn.Linear, list[torch.Size]]]:
    """Yield the shapes of the outputs of every call of these layers."""
    calls: dict[nn.Linear, list[torch.Size]] = {layer: [] for layer in layers}

    def record(layer: Any, arguments: tuple[Any, ...], output: Tensor) -> None:
        calls[layer].append(output.shape)

    with hook_outputs(layers, record):
        yield calls


@contextmanager
def _nudge(layers: Collection[nn.Linear], nudges: Sequence[Tensor]) -> Iterator[dict[nn.Module, Tensor]]:
    """Add to the outputs of these layers, and yield their inputs."""
    seen: dict[nn.Module, Tensor] = {}
    by_layer = dict(zip(layers, nudges, strict=True))

    def nudge(layer: Any, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
        seen[layer] = arguments[0]
        return output + by_layer[layer]

    with hook_outputs(layers, nudge):
        yield seen


class EvalMode:
    """Puts a model in eval mode; afterwards every module is in the mode it was in."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._modes = [(module, module.training) for module in model.modules()]

    def __enter__(self) -> None:
        self._model.eval()

    def __exit__(self, *error: object) -> None:
        for module, is_training in self._modes:
            module.training = is_training


#: Called with a layer, its arguments and its output; what it returns, unless None, is the output instead.
Hook = Callable[[Any, tuple[Any, ...], Tensor], Tensor | None]


@contextmanager
def hook_outputs(layers: Iterable[nn.Module], hook: Hook) -> Iterator[None]:
    """Call the hook after every call of these layers."""
    handles = [layer.register_forward_hook(hook) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
