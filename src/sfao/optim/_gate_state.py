"""The state of a gate, written as plain containers and tensors, and read with every check before anything changes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from sfao.gating._state_checks import check_numbers, check_whole, show
from sfao.gating.budget import MemoryPlan
from sfao.gating.memory import Memory
from sfao.gating.options import DEFAULTS, check_options
from sfao.gating.subspace import Subspace
from sfao.optim._books import change_books
from sfao.optim._planning import check_same_options
from sfao.optim._seals import SEALS, check_seals, is_sealed, seal
from sfao.optim._sharding.state import check_not_cut, read_shard, write_shard
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
    granularity: str
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
        read = self.read_state_dict(state_dict)
        change_books(self, lambda: self.adopt_state(*read))  # type: ignore[arg-type]

    def read_state_dict(self, state_dict: dict[str, Any]) -> tuple[GateState, list[dict[str, Any]]]:
        """Return a state and the groups with its options, checked; a RuntimeError if it is of another model."""
        state = read_state(self, state_dict)  # type: ignore[arg-type]
        return state, read_group_options(state_dict, self.param_groups, self.granularity)

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
        "layers": {layer.name: _write_layer(gate, layer, counts[layer.name]) for layer in gate.layers},
    }


def read_state(gate: "Gate", state: dict[str, Any]) -> GateState:
    """Return the state, checked against the gate; a RuntimeError if it is of another model or damaged."""
    at = "it"
    try:
        _check_identity(gate, state)
        task, names = check_whole("task", state["task"]), [layer.name for layer in gate.layers]
        layers = []
        for layer, name in zip(gate.layers, state["layers"], strict=True):
            at = f"layer {name!r}"
            layers.append(_read_layer(layer, state["layers"][name]))
            check_seals(name, task, gate.granularity, state["layers"][name])
        by_name = dict(zip(names, state["layers"].values(), strict=True))
        return GateState(task, layers, read_sketches(by_name, gate.shards))
    except StateOfAnother:
        raise
    except Exception as error:  # whatever a damaged state leads to
        raise RuntimeError(f"`state_dict` must come from a gate, but {at} is damaged: {describe(error)}") from error


#: The most characters of an error that are told as a reason.
LONGEST_REASON = 300


class StateOfAnother(RuntimeError):  # noqa: N818, it names what was found
    """A state that is whole, but of another model."""


def describe(error: Exception) -> str:
    """Return what an error says, in one line that is not endless: torch lists all its backends in some."""
    if isinstance(error, KeyError):
        return f"it has no entry {error}"
    said = " ".join(str(error).split()) or type(error).__name__
    return said if len(said) <= LONGEST_REASON else f"{said[:LONGEST_REASON]} ..."


def _check_identity(gate: "Gate", state: dict[str, Any]) -> None:
    """Raise a StateOfAnother if a state is of another granularity or of other layers."""
    if state["granularity"] != gate.granularity:
        got = show(state["granularity"])
        raise StateOfAnother(f"`state_dict` must have granularity {gate.granularity!r}, got {got}")
    names, saved = [layer.name for layer in gate.layers], list(state["layers"])
    if saved != names and [strip_saved_name(name) for name in saved] != names:
        raise StateOfAnother(f"`state_dict` must be of a model with the layers {names}, got {saved}")


def check_saved_options(groups: Sequence[dict[str, Any]], granularity: str) -> None:
    """Raise a ValueError that names the first option of these groups that breaks its rule."""
    for group in groups:
        check_options(group)
        if granularity == "global":
            check_same_options(group, groups[0])


def read_group_options(
    state: dict[str, Any], groups: Sequence[dict[str, Any]], granularity: str
) -> list[dict[str, Any]]:
    """Return the groups with the options of the state, checked; a RuntimeError if they are of no gate."""
    try:
        read = [
            {**group, **DEFAULTS, **OLD_OPTIONS, **saved} for group, saved in zip(groups, state["options"], strict=True)
        ]
        check_saved_options(read, granularity)
    except Exception as error:  # whatever a damaged state leads to
        raise RuntimeError(f"`state_dict` must hold the options of a gate: {describe(error)}") from error
    return read


def _write_layer(gate: "Gate", layer: Layer, counts: dict[str, int]) -> dict[str, Any]:
    state = {
        "shapes": [list(parameter.shape) for parameter in layer.parameters],
        "sketch": sketch(layer),
        "counts": counts,
        "rule_state": list(layer.rule_state),
        "memory": layer.memory.state_dict(),
        "spaces": [space.state_dict() for space in layer.spaces],
        "travel": layer.travel.state_dict(),
        **(write_shard(layer, layer.shards) if layer.shards is not None else {}),
    }
    return {**state, SEALS: seal(layer.name, gate.task, gate.granularity, state, in_shards=layer.shards is not None)}


def _read_layer(layer: Layer, saved: dict[str, Any]) -> LayerState:
    shapes = [list(parameter.shape) for parameter in layer.parameters]
    if saved["shapes"] != shapes:
        raise StateOfAnother(
            f"`state_dict` must have parameters of shapes {shapes} in layer {layer.name!r}, got {show(saved['shapes'])}"
        )
    counts = {name: check_whole(f"counts/{name}", saved["counts"][name]) for name in layer.counts}
    device = layer.parameters[0].device if layer.parameters else torch.device("cpu")
    layouts, is_known = layer.whole_layouts, is_sealed(saved, "memory/products")
    # A state from before there were input spaces has none.
    saved_spaces = saved.get("spaces", [Subspace(layout).state_dict() for layout in layouts])
    if layer.shards is not None:
        memory, spaces = read_shard(layer, saved["memory"], saved_spaces, layer.shards, trusts_products=is_known)
    else:
        check_not_cut(saved["memory"], saved_spaces)
        memory = Memory.from_state_dict(saved["memory"], layouts, device, trusts_products=is_known)
        spaces = [
            Subspace.from_state_dict(space, layout, device) for space, layout in zip(saved_spaces, layouts, strict=True)
        ]
    travel = Travel.from_state_dict(saved["travel"]) if "travel" in saved else Travel()
    rule_state = check_numbers("rule_state", saved.get("rule_state", layer.rule_state), len(layer.rule_state))
    return LayerState(memory, spaces, travel, counts, tuple(rule_state))
