"""The state of a gate, written as plain containers and tensors, and read with every check before anything changes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

import torch

from sfao.gating.budget import MemoryPlan
from sfao.gating.memory import Memory
from sfao.gating.options import DEFAULTS, check_options
from sfao.gating.subspace import Subspace
from sfao.optim._sharding.state import check_whole, read_shard, write_shard
from sfao.optim._sketch import read_sketches, sketch
from sfao.optim._travel import Travel
from sfao.optim.layers import Layer, strip_saved_name

if TYPE_CHECKING:
    from sfao.optim.gate import Gate


#: Options that states of before do not name, as they were.
OLD_OPTIONS = {"memory": "directions"}


@dataclass(frozen=True)
class LayerState:
    """The state of one layer."""

    memory: Memory
    spaces: list[Subspace]
    travel: Travel
    counts: dict[str, int]
    rule_state: tuple[float, ...]


@dataclass(frozen=True)
class GateState:
    """A state that `read_state` has checked: the task, and the state of each layer."""

    task: int
    layers: list[LayerState]
    #: Sketches of the weights that the memories are of, by layer.
    sketches: dict[str, list[float]]


class Saves:
    """Methods of a gate that write its state and go on from one."""

    task: int
    layers: list[Layer]
    param_groups: list[dict[str, Any]]
    memory_plan: MemoryPlan | None
    drop_path: Callable[[], None]
    _unseen: dict[str, list[float]]

    def state_dict(self) -> dict[str, Any]:
        """Return memories, counts, generators and options, in plain containers and tensors."""
        options = [{name: group[name] for name in DEFAULTS} for group in self.param_groups]
        return {**write_state(self), "options": options}  # type: ignore[arg-type]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken; a RuntimeError, and nothing changed, if it is of another model.

        The next step() raises if the weights are far from those that the memory was saved with: load these too, before
        or after.
        """
        self.adopt_state(*self.read_state_dict(state_dict))

    def read_state_dict(self, state_dict: dict[str, Any]) -> tuple[GateState, list[dict[str, Any]]]:
        """Return a state and the groups with its options, checked; a RuntimeError if it is of another model."""
        state = read_state(self, state_dict)  # type: ignore[arg-type]
        return state, read_group_options(state_dict, self.param_groups)

    def adopt_state(self, state: GateState, groups: list[dict[str, Any]]) -> None:
        """Go on from a state that was read, with the options of these groups."""
        self.task, self.param_groups, self._unseen = state.task, groups, state.sketches
        self.drop_path()
        plan = self.memory_plan
        if plan is not None and any(layer.memory.capacity != plan.capacity for layer in state.layers):
            self.memory_plan = None
        for layer, group, loaded in zip(self.layers, groups, state.layers, strict=False):
            layer.adopt(group, loaded.memory, loaded.spaces, loaded.travel, loaded.counts, loaded.rule_state)

    def trust_memory(self) -> None:
        """Take the weights as they are for those that a loaded memory is of, however far they are from these."""
        self._unseen = {}


def write_state(gate: "Gate") -> dict[str, Any]:
    """Return the state of a gate without its options, which param groups hold."""
    counts = gate.counts
    return {
        "task": gate.task,
        "granularity": gate.granularity,
        "layers": {layer.name: _write_layer(layer, counts[layer.name]) for layer in gate.layers},
    }


def read_state(gate: "Gate", state: dict[str, Any]) -> GateState:
    """Return the state, checked against the gate; a RuntimeError if it is of another model or damaged."""
    try:
        if state["granularity"] != gate.granularity:
            raise RuntimeError(f"`state_dict` must have granularity {gate.granularity!r}, got {state['granularity']!r}")
        names = [layer.name for layer in gate.layers]
        saved = dict(state["layers"])
        if list(saved) != names:
            saved = {strip_saved_name(name): of_layer for name, of_layer in saved.items()}
        if list(saved) != names:
            raise RuntimeError(f"`state_dict` must be of a model with the layers {names}, got {list(state['layers'])}")
        layers = [_read_layer(layer, saved[layer.name]) for layer in gate.layers]
        return GateState(int(state["task"]), layers, read_sketches(saved, gate.shards))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise RuntimeError(f"`state_dict` must come from a gate, but reading it failed: {error!r}") from error


def read_group_options(state: dict[str, Any], groups: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the groups with the options of the state, checked; a RuntimeError if they are of no gate."""
    try:
        read = [
            {**group, **DEFAULTS, **OLD_OPTIONS, **saved} for group, saved in zip(groups, state["options"], strict=True)
        ]
        for group in read:
            check_options(group)
    except (KeyError, TypeError, ValueError) as error:
        raise RuntimeError(f"`state_dict` must hold the options of a gate: {error}") from error
    return read


def _write_layer(layer: Layer, counts: dict[str, int]) -> dict[str, Any]:
    return {
        "shapes": [list(parameter.shape) for parameter in layer.parameters],
        "sketch": sketch(layer),
        "counts": counts,
        "rule_state": list(layer.rule_state),
        "memory": layer.memory.state_dict(),
        "spaces": [space.state_dict() for space in layer.spaces],
        "travel": layer.travel.state_dict(),
        **(write_shard(layer, layer.shards) if layer.shards is not None else {}),
    }


def _read_layer(layer: Layer, saved: dict[str, Any]) -> LayerState:
    shapes = [list(parameter.shape) for parameter in layer.parameters]
    if saved["shapes"] != shapes:
        raise RuntimeError(
            f"`state_dict` must have parameters of shapes {shapes} in layer {layer.name!r}, got {saved['shapes']}"
        )
    counts = {name: int(saved["counts"][name]) for name in layer.counts}
    device = layer.parameters[0].device if layer.parameters else torch.device("cpu")
    layouts = layer.whole_layouts
    # A state from before there were input spaces has none.
    saved_spaces = saved.get("spaces", [Subspace(layout).state_dict() for layout in layouts])
    if layer.shards is not None:
        memory, spaces = read_shard(layer, saved["memory"], saved_spaces, layer.shards)
    else:
        check_whole(saved["memory"], saved_spaces)
        memory = Memory.from_state_dict(saved["memory"], layouts, device)
        spaces = [
            Subspace.from_state_dict(space, layout, device) for space, layout in zip(saved_spaces, layouts, strict=True)
        ]
    travel = Travel.from_state_dict(saved["travel"]) if "travel" in saved else Travel()
    rule_state = tuple(map(float, saved.get("rule_state", layer.rule.initial_state())))
    if len(rule_state) != len(layer.rule_state) or not all(map(isfinite, rule_state)):
        raise RuntimeError(
            f"`state_dict` must hold {len(layer.rule_state)} finite values of state of the rule in layer "
            f"{layer.name!r}, got {list(rule_state)}"
        )
    return LayerState(memory, spaces, travel, counts, rule_state)
