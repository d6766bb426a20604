"""The inputs that the layers of a model see, caught where a weight is used, in whatever module or function that is."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from sfao.gating.input_moments import InputMoments
from sfao.optim._consolidation.gradients import EvalMode
from sfao.optim._consolidation.objectives import Objective, call_model, find_dtype, unwrap
from sfao.optim._consolidation.trees import count_examples, join, measure_size, move, sign
from sfao.optim._precision import work_exactly
from sfao.optim._sharding.shards import make_whole
from sfao.optim._sharding.stand_ins import StandIns

#: Examples whose inputs are gathered at the end of a task, unless told otherwise.
EXAMPLES = 600
#: Examples that go through the model together.
BATCH = 64


@dataclass
class SeenInputs:
    """What some examples showed of the weights of a model."""

    #: The moments of the inputs of each weight that was seen in a call that has them.
    moments: dict[Tensor, InputMoments] = field(default_factory=dict)
    #: The other uses of weights, by the name of the function.
    others: dict[Tensor, str] = field(default_factory=dict)
    #: For weights whose outputs go to the loss through no other weight: which of their rows it depends on.
    used_rows: dict[Tensor, Tensor] = field(default_factory=dict)


def gather_inputs(
    model: nn.Module,
    examples: Sequence[Any],
    weights: Mapping[Tensor, bool],
    generator: torch.Generator,
    kind: type[InputMoments] = InputMoments,
    objective: Objective | None = None,
) -> SeenInputs:
    """Return what these weights, {weight: has a bias}, see of the examples.

    The model is in eval mode meanwhile, and no gradient of it is taken. `kind` says which of the inputs are looked at;
    with an `objective`, it is found out which outputs of the model it looks at.
    """
    plain = unwrap(model)  # inside a compiled model no call can be seen
    device, dtype = next(iter(weights)).device, find_dtype(plain)
    watch = _Watch(plain, weights, sum(map(measure_size, examples)), generator, kind)
    with EvalMode(plain):
        for batch in _join(examples):
            watch.examples = measure_size(batch)
            moved = move(batch, device, dtype)
            with torch.set_grad_enabled(objective is not None), watch:
                value = (objective or call_model)(plain, moved)
            if value is not None:
                watch.note_used_rows(value)
    return watch.seen


def _join(examples: Sequence[Any]) -> Iterable[Any]:
    """Yield examples of one shape that follow each other, as batches; batches that cannot be cut, as they are."""
    together: list[Any] = []
    for example in examples:
        if together and (len(together) == BATCH or count_examples(example) != 1 or sign(example) != sign(together[0])):
            yield join(together)
            together = []
        together.append(example)
    if together:
        yield join(together)


class _Watch(TorchFunctionMode):
    """Sees every call of a torch function with a weight among its arguments."""

    def __init__(
        self,
        model: nn.Module,
        weights: Mapping[Tensor, bool],
        examples: int,
        generator: torch.Generator,
        kind: type[InputMoments],
    ) -> None:
        super().__init__()
        self._stand_ins = StandIns(model, weights)
        self._weights, self._total, self._generator, self._kind = weights, examples, generator, kind
        self.examples = 0
        self.seen = SeenInputs()
        #: What weights made of their inputs, cut off from how they made it, with the dimension of their rows.
        self._results: list[tuple[Tensor, Tensor, int]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        arguments = kwargs or {}
        read = READERS.get(func)
        seen, used = None, None
        if read is not None:
            used, inputs, places = read(*args, **arguments)
            seen = self._stand_ins.find(used)
            if seen is not None:
                # A model may compute as it likes, in bfloat16 say: sums over inputs are not its own.
                work_exactly(partial(self._see, seen, inputs, places), seen.device.type)
        # A bias that is a layer of its own has no inputs.
        self._note_others(func, [argument for argument in (*args, *arguments.values()) if argument is not used])
        result = func(*args, **arguments)
        if seen is not None and torch.is_grad_enabled():
            cut = result.detach().requires_grad_()
            self._results.append((seen, cut, -1 if func is functional.linear else 1 - seen.ndim))
            return cut.clone()  # which may be changed in place
        return result

    def note_used_rows(self, value: Tensor) -> None:
        """Note which rows of weights this value of the loss depends on; weights further from it are left out."""
        results, self._results = self._results, []
        if not results or not value.requires_grad:
            return
        with torch.enable_grad():
            gradients = torch.autograd.grad(value.sum(), [result for _, result, _ in results], allow_unused=True)
        for (weight, _, dim), gradient in zip(results, gradients, strict=True):
            # A loss that is flat here, as a hinge is once all is learnt, does not tell what it looks at.
            gradient = None if gradient is None else make_whole(gradient)
            if gradient is not None and bool(gradient.any()):
                used = gradient.movedim(dim, 0).flatten(1).any(1)
                self.seen.used_rows[weight] = used | self.seen.used_rows.get(weight, used)

    def _see(self, weight: Tensor, inputs: Tensor, places: int) -> None:
        """Add inputs, numbered in the first `places` dimensions: all of them, or some drawn at random."""
        inputs = make_whole(inputs)
        width, has_bias = inputs.shape[places:].numel(), self._weights[weight]
        moments = self.seen.moments.setdefault(weight, self._kind(width + has_bias, has_bias, self._total))
        count, room = inputs.shape[:places].numel(), moments.room(self.examples)
        if count > room:
            drawn = torch.randint(count, (room,), generator=self._generator, device="cpu").to(inputs.device)
            # Patches are views of an image: only those that are drawn are copied.
            inputs = inputs[torch.unravel_index(drawn, inputs.shape[:places])]
        moments.add(inputs.reshape(-1, width), max(1.0, count / room), self._generator)

    def _note_others(self, func: Callable[..., Any], arguments: Iterable[Any]) -> None:
        if getattr(func, "__name__", "").startswith("__") and func not in VIEWS:
            return  # attributes, such as a weight's shape, are functions too
        for argument in arguments:
            for tensor in argument if isinstance(argument, (tuple, list)) else (argument,):
                weight = self._stand_ins.find(tensor) if isinstance(tensor, nn.Parameter) else None
                if weight is not None:
                    self.seen.others.setdefault(weight, VIEWS.get(func, func.__name__))


def _read_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor, int]:
    return weight, input, input.ndim - 1


def _read_convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> tuple[Tensor, Tensor, int]:
    """Return the weight and the patches that it is applied to, (example x positions x groups) of them."""
    dims = weight.ndim - 2
    images = input if input.ndim == weight.ndim else input[None]
    sizes = weight.shape[2:]
    strides, dilations = _spread(stride, dims), _spread(dilation, dims)
    pads: list[int] = []
    for dim in reversed(range(dims)):
        span = dilations[dim] * (sizes[dim] - 1)
        same = (span // 2, span - span // 2)
        pads += same if padding == "same" else (0, 0) if padding == "valid" else (_spread(padding, dims)[dim],) * 2
    patches = functional.pad(images, pads)
    for dim in range(dims):
        span = dilations[dim] * (sizes[dim] - 1) + 1
        patches = patches.unfold(2 + dim, span, strides[dim])[..., :: dilations[dim]]
    # (example, channels, positions, offsets) -> (example, positions, groups, channels of a group, offsets)
    patches = patches.unflatten(1, (groups, -1)).movedim((1, 2), (1 + dims, 2 + dims))
    return weight, patches, 2 + dims


def _spread(value: Any, dims: int) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return values * dims if len(values) == 1 else values


#: How to find the weight, the inputs and the number of dimensions that number them in a call of a function.
READERS: dict[Callable[..., Any], Callable[..., tuple[Tensor, Tensor, int]]] = {
    functional.linear: _read_linear,
    functional.conv1d: _read_convolution,
    functional.conv2d: _read_convolution,
    functional.conv3d: _read_convolution,
}
#: Attributes and operators that make another tensor of a weight, which is then used without its name.
VIEWS: dict[Any, str] = {
    Tensor.__getitem__: "indexing",
    Tensor.T.__get__: "T",  # type: ignore[attr-defined]
    Tensor.mT.__get__: "mT",  # type: ignore[attr-defined]
}
