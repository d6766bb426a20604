"""The state of a gate in plain containers and tensors, and the fingerprint of the weights that it belongs to."""

from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sfao.decision import Sampler
from sfao.distributed import full_tensor
from sfao.layers import Layer
from sfao.memory.directions import STORAGES
from sfao.memory.memory import Memory
from sfao.memory.slots import Slots
from sfao.options import OPTIONS, read_options

if TYPE_CHECKING:
    from sfao.gate import Gate

#: Weights of each parameter in a fingerprint, at most.
NUMBERS = 64
#: Weights further than this from those that were saved, relative to their norm, are others.
FAR = 0.5
CHECKSUM = "checksum"
OLD_STATE = "`state_dict` was saved by sfao 0.1, which this version can't load; train again"


def write_state(gate: "Gate") -> dict[str, Any]:
    """Return the state of a gate. Under sharding all ranks call this together."""
    state = {
        "tasks": gate.tasks,
        "granularity": gate.granularity,
        "options": [{name: group[name] for name in OPTIONS} for group in gate.param_groups],
        "layers": {layer.name: _write_layer(layer) for layer in gate.layers},
    }
    return {**state, CHECKSUM: compute_checksum(state)}


def _write_layer(layer: Layer) -> dict[str, Any]:
    memory, slots = layer.memory, layer.memory.slots
    return {
        "shapes": [list(parameter.shape) for parameter in layer.parameters],
        "fingerprint": weight_fingerprint(layer),
        "counts": dict(layer.counts),
        "generator": layer.generator.get_state(),
        "sampler": [layer.sampler.seed, layer.sampler.turn],
        "slots": [list(slots.tasks), list(slots.arrivals), dict(slots.offered)],
        "channels_last": list(memory.channels_last),
        # A view of slots in use would be saved together with the free ones.
        "parts": [{"kind": p.kind, "rank": p.rank, "tensors": [t.clone() for t in p.held]} for p in memory.parts],
    }


def parse_state(gate: "Gate", state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state with layers as attributes of the gate's, checked, for `adopt_state`.

    Raise a RuntimeError if it belongs to another model or is damaged.
    """
    found = state if isinstance(state, Mapping) else {}
    if "tasks" not in found or "class" in found:
        if "task" in found:
            raise RuntimeError(OLD_STATE)
        got = f"the state of a {found['class']}" if "class" in found else describe_keys(state)
        raise RuntimeError(f"`state_dict` must come from SFAO or a Gate, got {got}")
    if compute_checksum({name: value for name, value in found.items() if name != CHECKSUM}) != found.get(CHECKSUM):
        raise RuntimeError("`state_dict` is damaged: its checksum is wrong")
    shapes = {layer.name: [list(p.shape) for p in layer.parameters] for layer in gate.layers}
    saved: Mapping[str, Any] = found["layers"]
    facts: list[tuple[str, Any, Any]] = [
        ("granularity", gate.granularity, found["granularity"]),
        ("layers", list(shapes), list(saved)),
    ]
    facts += [(f"shapes in layer {name!r}", own, saved.get(name, {}).get("shapes")) for name, own in shapes.items()]
    for what, own, other in facts:
        if own != other:
            raise RuntimeError(f"`state_dict` must belong to this model, with {what} {own}, got {other}")
    layers = [_parse_layer(layer, saved[layer.name]) for layer in gate.layers]
    fingerprints = {name: of_layer["fingerprint"] for name, of_layer in saved.items() if of_layer["slots"][0]}
    return {**found, "layers": layers, "fingerprints": fingerprints}


def _parse_layer(layer: Layer, saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a layer that change."""
    memory, remaining = Memory(), iter(saved["channels_last"])
    for own, part in zip(layer.memory.parts, saved["parts"], strict=True):
        tensors, device = part["tensors"], own.tensors[0].device
        loaded = STORAGES[part["kind"]]((own.rows, own.columns), tensors[0].dtype, part["rank"], device)
        memory.add_part(loaded, [next(remaining) for _ in own.columns])
        loaded.tensors = [tensor.to(device, copy=True) for tensor in tensors]
    tasks, arrivals, offered = saved["slots"]
    memory.commit([part.tensors for part in memory.parts], Slots(tuple(tasks), tuple(arrivals), dict(offered)))
    generator = torch.Generator()
    generator.set_state(saved["generator"].cpu())
    sampler, counts = Sampler(*saved["sampler"]), dict(saved["counts"])
    return {"memory": memory, "generator": generator, "sampler": sampler, "counts": counts}


def adopt_state(gate: "Gate", state: Mapping[str, Any], groups: list[dict[str, Any]]) -> None:
    """Continue from the result of `parse_state`, with options in these param groups."""
    for group, options in zip(groups, state["options"], strict=True):
        group.update(options)
    for layer, group, loaded in zip(gate.layers, groups, state["layers"], strict=False):
        vars(layer).update(loaded, options=group, checked_options=read_options(group))
    gate.param_groups, gate.tasks, gate.fingerprints = groups, state["tasks"], dict(state["fingerprints"])


def describe_keys(state: object) -> str:
    return f"keys {list(state)}" if isinstance(state, Mapping) else f"a {type(state).__name__}"


# -- Checksum and fingerprint --------------------------------------------------------------------------------


def compute_checksum(value: Any) -> str:
    """Return a checksum of plain containers and tensors."""
    found = sha256()
    _add_to_checksum(found, value)
    return found.hexdigest()


def _add_to_checksum(found: Any, value: Any) -> None:
    if isinstance(value, Mapping):
        value = [part for pair in value.items() for part in pair]
    if isinstance(value, (list, tuple)):
        found.update(f"[{len(value)}".encode())
        for part in value:
            _add_to_checksum(found, part)
    elif isinstance(value, Tensor):
        found.update(str((value.dtype, tuple(value.shape))).encode())
        # A sum of the bits, on the device: hashing all bytes would take a minute for a large memory.
        bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[value.element_size()]
        found.update(str(int(value.detach().contiguous().view(bits).sum(dtype=torch.int64))).encode())
    else:
        found.update(f"{value!r};".encode())


def weight_fingerprint(layer: Layer) -> list[float]:
    """Return some weights of a layer, evenly spaced: they tell its weights from others."""
    flat = [full_tensor(parameter.detach()).reshape(-1) for parameter in layer.parameters]
    return [weight for own in flat for weight in own[:: -(-len(own) // NUMBERS)].double().tolist()]


def check_fingerprints(gate: "Gate") -> None:
    """Raise a RuntimeError if the weights of most layers are far from those that a loaded memory was saved with."""
    distances: dict[str, float] = {}
    for layer in gate.layers:
        if layer.name in gate.fingerprints:
            before = torch.tensor(gate.fingerprints[layer.name], dtype=torch.float64)
            now = torch.tensor(weight_fingerprint(layer), dtype=torch.float64)
            size = max(float(before.norm()), torch.finfo(torch.float32).tiny)
            distances[layer.name] = float((now - before).norm()) / size
    far = [name for name, distance in distances.items() if not distance <= FAR]
    if 2 * len(far) > len(distances):
        raise RuntimeError(
            f"the loaded memory belongs to other weights: those of layer {far[0]!r} are {distances[far[0]]:.0%} away "
            "from the saved ones; load the weights too"
        )
    gate.fingerprints = {}
