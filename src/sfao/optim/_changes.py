"""Changes to what a gate watches and remembers, beside those of steps and tasks."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Self

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from sfao.checks import check_choice, check_count
from sfao.gating.budget import MemoryPlan
from sfao.gating.options import DEFAULTS, check_group_names
from sfao.optim._attachment import Attachment, check_optimizer
from sfao.optim._books import change_books
from sfao.optim._consolidation.store import store_gradient
from sfao.optim._gate_path import Path, PathHistory
from sfao.optim._growth import find_growth, grow_layer
from sfao.optim._host_path import find_finite_gradients
from sfao.optim._membership import find_ungated
from sfao.optim._planning import name_memory
from sfao.optim._sharding.choose import make_path
from sfao.optim._sharding.shards import Shards
from sfao.optim._sharding.store import remember_shards
from sfao.optim._whole_or_not import Exactly
from sfao.optim.layers import Layer, as_groups, layer_groups


class Changes:
    """Methods of a gate that change its layers or its memories from outside."""

    #: True for a copy of a gate that was in front of an optimizer: a copy of that one has no gate.
    _lost_optimizer: bool = False
    #: The processes that train one model together, None for all; they are asked unless `sync` is False.
    process_group: Any = None
    sync: bool = True

    #: The ranks that hold the parameters in shards.
    shards: Shards | None
    layers: list[Layer]
    param_groups: list[dict[str, Any]]
    granularity: str
    memory_plan: MemoryPlan | None
    _attachment: Attachment | None
    _path: Path
    _close_path: Callable[[], None]
    defaults: dict[str, Any]
    task: int
    _exactly: Exactly
    _check_options: Callable[[], None]
    add_group: Callable[[dict[str, Any]], None]
    _hooks: OrderedDict[int, Callable[[Any], object]]

    def register_consolidate_hook(self, hook: Callable[[Any], object]) -> RemovableHandle:
        """Call `hook(gate)` after every consolidation; return a handle with a method `remove`."""
        handle = RemovableHandle(self._hooks)
        self._hooks[handle.id] = hook
        return handle

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a layer; the memory of the others stays as it is."""
        (group,) = as_groups([param_group], taken=[known["name"] for known in self.param_groups])
        check_group_names(group, tuple(DEFAULTS))
        self.add_group({**self.defaults, **name_memory(group, {"memory": self.defaults["memory"]}), **group})

    def attach(self, optimizer: Optimizer) -> Self:
        """Gate every step() of this optimizer from now on; return the gate.

        Directions gate the gradients that the optimizer sees; the subspace softens the update that it makes of them,
        momentum, adaptive steps and decay included. A discarded layer does not move at all.
        The optimizer's state_dict() holds the gate's under ``"sfao_gate"``. Parameters that are ungated now stay so;
        others that come into the optimizer later must be gated, see :meth:`rebind`, or step() raises.
        """
        if self._attachment is not None and self._attachment.optimizer is not None:
            raise ValueError(
                "a gate must be free to be attached, but this one is in front of an optimizer; detach() it first"
            )
        self._attachment, self._lost_optimizer = Attachment(self, optimizer), False  # type: ignore[arg-type]
        return self

    def detach(self) -> None:
        """Leave the optimizer as it was before `attach`."""
        self._lost_optimizer = False
        if self._attachment is not None:
            self._attachment.remove()
            self._attachment = None

    def rebind(self, model: nn.Module) -> list[str]:
        """Follow a model that has grown; return the names of the layers that are others now.

        A layer whose parameters the model holds no more is found by its name. It may have more rows, the first of
        which are those of before: what is remembered is of these, and the new ones are free. In front of an optimizer,
        which must know the new parameters already, parameters that came into it since `attach` become layers too.
        A ValueError, and nothing changed, for a layer that is gone or has other shapes.
        """
        if self.shards is not None:
            raise ValueError(
                "rebind() follows whole parameters, but ranks hold those of this gate in shards; make a new gate"
            )
        grown = find_growth(self.layers, model)
        if grown and self.granularity == "global":
            raise ValueError('rebind() follows layers one by one; it needs granularity="layer", got "global"')
        attachment = self._attachment
        added = [] if attachment is None else self._find_added(attachment, model, grown)
        if attachment is not None:
            check_optimizer([(layer.name, parameters) for layer, parameters in grown.items()], attachment.optimizer)
        self._close_path()
        for layer, parameters in grown.items():
            grow_layer(layer, parameters)
            layer.options["params"] = list(parameters)
        for group in added:
            self.add_param_group(group)
        self.drop_path()
        return [layer.name for layer in grown] + [group["name"] for group in added]

    def _find_added(
        self, attachment: Attachment, model: nn.Module, grown: Mapping[Layer, list[Tensor]]
    ) -> list[dict[str, Any]]:
        """Return groups of the model's parameters that came into the optimizer since the gate stands in front of it."""
        replacing = {parameter for parameters in grown.values() for parameter in parameters}
        ungated = {p for p in find_ungated(self.layers, attachment.members) if p not in replacing}
        new = ungated - attachment.free
        groups = ({**group, "params": [p for p in group["params"] if p in new]} for group in layer_groups(model))
        return [group for group in groups if group["params"]]

    def remember(self) -> int:
        """Store the directions of the gradients that backward() left; return how many were stored."""
        holders = [layer for layer in self.layers if "directions" in layer.memories]
        if not holders:
            raise ValueError("remember() stores gradients, but this gate has memory='subspace'; use consolidate()")
        self._close_path()
        return change_books(self, lambda: self._exactly(lambda: self._remember(holders)))  # type: ignore[arg-type]

    def _remember(self, holders: list[Layer]) -> int:
        self._check_options()
        if self.shards is not None:
            return remember_shards(holders, self.shards, self.task)
        found = find_finite_gradients(holders)
        return sum(store_gradient(layer, gradient, self.task) for layer, gradient in found)

    def make_room(self, directions: int) -> None:
        """Let every layer hold exactly this many directions more than it holds now, whatever its `capacity` said."""
        check_count("directions", directions)
        if self.memory_plan is not None:
            raise ValueError("`memory_budget` limits what a gate holds; make_room() needs a gate without one")
        for layer in self.layers:
            layer.memory.set_capacity(len(layer.memory) + directions)

    def set_axes(self, axes: Mapping[str, Tensor]) -> None:
        """Let layers, by name, remember these axes of their inputs, of equal importance, in place of those they hold.

        One axis per row, orthonormal; the entries are those of a row of the weight, then the one of the bias.
        """
        for name in axes:
            check_choice("axes", name, tuple(layer.name for layer in self.layers))
        spaces = {layer: [copy(space) for space in layer.spaces] for layer in self.layers if layer.name in axes}
        if self.shards is not None and spaces:
            raise ValueError("set_axes() sets those of whole layers, but ranks hold those of this gate in shards")
        for layer, found in spaces.items():
            found[0].set_axes(axes[layer.name])
        self._close_path()
        for layer, found in spaces.items():
            layer.set_spaces(found)

    def drop_path(self) -> None:
        """Gate anew from the next step on: memories were replaced, and what a device knew of them is void."""
        self._path.abandon()
        self._path = make_path(self.layers, self.shards, self._path.history)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy or a pickle takes along: nothing that lives on a device, and no attachment."""
        report, _ = self._path.report(), self._path.counts()
        path = make_path(self.layers, self.shards, PathHistory(), report)
        alone = {"_path": path, "softening": None, "_attachment": None, "_hooks": OrderedDict[int, Any]()}
        lost = self._attachment is not None or self._lost_optimizer
        return {**self.__dict__, **alone, "_checked": [], "_lost_optimizer": lost}
