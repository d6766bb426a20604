"""Layers: the parameters that are gated together."""

from collections.abc import Iterable, Sequence
from itertools import count
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

from sfao.gating.decision import COUNTED
from sfao.gating.layout import layouts
from sfao.gating.memory import Memory, make_block
from sfao.gating.options import DEFAULTS, FIXED, MEMORY_DTYPES, check_options
from sfao.optim.gradients import LayerGradient, NonFiniteGradient

#: What an optimizer takes: tensors, (name, tensor) pairs, or param groups.
Parameters = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]


_OPTIONS = itemgetter(*DEFAULTS)


def layer_groups(model: nn.Module) -> list[dict[str, Any]]:
    """One named param group for every module that has parameters of its own.

    A parameter shared by several modules belongs to the first. Frozen parameters are included: they take
    part as soon as they have gradients.
    """
    groups: list[dict[str, Any]] = []
    seen: set[Tensor] = set()
    for path, module in model.named_modules():
        own = [parameter for parameter in module.parameters(recurse=False) if parameter not in seen]
        seen.update(own)
        if own:
            name = ".".join(part for part in path.split(".") if part != "_orig_mod")
            groups.append({"params": own, "name": name or "(root)"})
    return groups


def as_groups(parameters: Parameters, taken: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Param groups, named; every bare tensor becomes a group, hence a layer, of its own.

    Groups without a name are numbered, past the names that are taken.
    """
    if isinstance(parameters, (Tensor, nn.Module)):
        raise ValueError(
            f"`params` must be an iterable of tensors or param groups, got a {type(parameters).__name__}; "
            "for a model, sfao.layer_groups(model)"
        )
    groups = [_as_group(item) for item in parameters]
    names = {*taken, *(group["name"] for group in groups if "name" in group)}
    free = (name for name in map("layer{}".format, count()) if name not in names)
    return [group if "name" in group else {**group, "name": next(free)} for group in groups]


def _as_group(item: object) -> dict[str, Any]:
    if isinstance(item, Tensor):
        return {"params": [item]}
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], Tensor):
        return {"params": [item[1]], "name": item[0]}
    if not isinstance(item, dict) or "params" not in item:
        raise ValueError(
            "`params` must hold tensors, (name, tensor) pairs or dicts with a key 'params', "
            f"got {'a dict without it' if isinstance(item, dict) else type(item).__name__}"
        )
    params = [item["params"]] if isinstance(item["params"], Tensor) else list(item["params"])
    tensors = [param[1] if isinstance(param, tuple) else param for param in params]
    if not tensors:
        raise ValueError(f"a param group must hold at least one parameter, got none in {item.get('name', 'a group')!r}")
    return {**item, "params": tensors}


class Layer:
    """Parameters that get one decision a step, with their memory and their counts.

    `options` is the param group itself: what is changed there, a threshold schedule say, holds from the
    next step on.
    """

    def __init__(self, name: str, options: dict[str, Any], generator: torch.Generator) -> None:
        self.name = name
        self.options = options
        self.parameters: list[Tensor] = []
        self.memory = Memory([], options["capacity"], generator)
        self.counts = dict.fromkeys(COUNTED, 0)
        #: The options when they were last found to hold.
        self.checked = self._values()

    def add_parameters(self, parameters: list[Tensor], options: dict[str, Any]) -> None:
        """Take in parameters; those without entries have nothing to remember."""
        sized = [parameter for parameter in parameters if parameter.numel()]
        dtype = MEMORY_DTYPES[options["memory_dtype"]]
        for layout in layouts([parameter.shape for parameter in sized]):
            self.memory.add_block(make_block(layout, options["storage"], options["rank"], dtype))
        self.parameters += sized

    def check_options(self) -> None:
        """Raise a ValueError if the options, which anyone may change, do not hold any more."""
        values = self._values()
        if values == self.checked:
            return
        check_options(self.options)
        for name, before, now in zip(DEFAULTS, self.checked, values, strict=True):
            if name in FIXED and now != before:
                raise ValueError(f"`{name}` is fixed when a layer is made ({before!r}), got {now!r} for {self.name!r}")
        self.checked = values

    def _values(self) -> tuple[object, ...]:
        values: tuple[object, ...] = _OPTIONS(self.options)
        return values

    def adopt(self, options: dict[str, Any], memory: Memory, counts: dict[str, int]) -> None:
        """Go on with another memory, as when a state is loaded."""
        self.options, self.memory, self.counts = options, memory, dict(counts)
        self.checked = self._values()

    @property
    def has_gradient(self) -> bool:
        return any(parameter.grad is not None for parameter in self.parameters)

    def gradient(self, gradients: Sequence[Tensor | None] | None = None) -> LayerGradient:
        """The given gradients of the layer's parameters, or those that backward() left in them."""
        if gradients is None:
            gradients = [parameter.grad for parameter in self.parameters]
        if any(gradient is not None and gradient.layout != torch.strided for gradient in gradients):
            raise ValueError(f"the gradient of layer {self.name!r} must be dense, got a sparse tensor")
        return LayerGradient(gradients, self.memory.layouts)

    def remember(self, gradient: LayerGradient, task: int) -> bool:
        """Offer the direction of a gradient to the memory; whether it was stored."""
        if gradient.norm == 0 or gradient.norm < self.options["min_norm"]:
            return False
        self.follow(gradient)
        return self.memory.offer(
            gradient.matrices(),
            gradient.working_norm,
            task,
            eviction=self.options["eviction"],
            admit_below=self.options["admit_below"],
        )

    def check_finite(self, gradient: LayerGradient) -> None:
        if not gradient.is_finite:
            raise NonFiniteGradient(f"the gradient of layer {self.name!r} must be finite, got {gradient.norm}")

    def put(self, gradient: LayerGradient, slot: int) -> None:
        """Store the direction of a gradient in this slot of the memory."""
        self.follow(gradient)
        self.memory.write_one(slot, gradient.matrices(), gradient.working_norm)

    def follow(self, gradient: LayerGradient) -> None:
        """Bring the memory to the device of the gradient, and into its order, should the model have moved."""
        self.bring_to(gradient.present[0].device)
        self.memory.arrange(gradient.channels_last)

    def bring_to(self, device: torch.device) -> None:
        if self.memory.device != device:
            self.memory.to(device)


#: Layers beside the gradients found in them.
Found = Sequence[tuple[Layer, LayerGradient]]
