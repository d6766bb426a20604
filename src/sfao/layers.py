"""Layers: the parameters that get one decision per step, with their names and their memory."""

from collections.abc import Iterable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sfao.batches import clean_name, unwrap
from sfao.decision import COUNTED, Sampler
from sfao.distributed import check_not_flat, reshard, to_local
from sfao.memory.directions import MEMORY_DTYPES, lay_out, make_parts
from sfao.memory.memory import Memory, is_channels_last
from sfao.options import read_options

if TYPE_CHECKING:
    from sfao.gate import Gate

#: What the paper's classes accept: a model, tensors, (name, tensor) pairs, or param groups.
Parameters = nn.Module | Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]


def layer_groups(model: nn.Module, *, trainable_only: bool = True) -> list[dict[str, Any]]:
    """Return one named param group for every module that has parameters of its own.

    A parameter shared by several modules belongs to the first. Names are those in the bare model, whatever wraps it.

    Args:
        model: any module.
        trainable_only: leave out frozen parameters. Include them, with False, if they will be trained later: they take
            part as soon as they have gradients.

    Example::

        >>> groups = layer_groups(model)
        >>> groups[-1]["accept_above"] = 0.5
        >>> optimizer = SFAO(groups, lr=0.1)
    """
    check_not_flat(model)
    reshard(model)
    groups: list[dict[str, Any]] = []
    seen: set[Tensor] = set()
    for path, module in unwrap(model).named_modules():
        own = [parameter for parameter in module.parameters(recurse=False) if parameter not in seen]
        seen.update(own)
        if trainable_only:
            own = [parameter for parameter in own if parameter.requires_grad]
        if own:
            groups.append({"params": own, "name": clean_name(path)})
    return groups


def as_groups(parameters: Parameters, groups: Sequence[dict[str, Any]] = ()) -> list[dict[str, Any]]:
    """Return named param groups: those of a model's layers, those given, or one for each plain parameter.

    Args:
        parameters: see :data:`Parameters`.
        groups: groups that exist already; names and parameters must differ from theirs.
    """
    if isinstance(parameters, nn.Module):
        parameters = layer_groups(parameters)
    if isinstance(parameters, Tensor) or not isinstance(parameters, Iterable):
        kind = type(parameters).__name__
        raise ValueError(f"`params` must be a model, or an iterable of parameters or param groups, got a {kind}")
    found = [_as_group(item) for item in parameters]
    if not found:
        raise ValueError("`params` must hold at least one trainable parameter, got none")
    names = [group["name"] for group in (*groups, *found) if "name" in group]
    free = (name for name in map("layer{}".format, count()) if name not in names)
    found = [group if "name" in group else {**group, "name": next(free)} for group in found]
    known = {parameter for group in groups for parameter in group["params"]}
    for group in found:
        name = group["name"]
        if names.count(name) > 1:
            raise ValueError(f"`name` must be unique among param groups, got {name!r} twice")
        if not group["params"]:
            raise ValueError(f"a param group must hold at least one parameter, got none in {name!r}")
        for parameter in group["params"]:
            if parameter in known:
                raise ValueError(f"a parameter must be in one group once, got one of {name!r} again")
            if not isinstance(parameter, Tensor) or not parameter.is_leaf or not parameter.is_floating_point():
                raise ValueError(f"parameters must be leaf tensors of real numbers, got another in {name!r}")
            known.add(parameter)
    return found


def _as_group(item: object) -> dict[str, Any]:
    if isinstance(item, Tensor):
        return {"params": [item]}
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], Tensor):
        return {"params": [item[1]], "name": item[0]}
    if not isinstance(item, dict) or "params" not in item:
        kind = "a dict without it" if isinstance(item, dict) else type(item).__name__
        raise ValueError(
            f"`params` must hold parameters, (name, parameter) pairs or dicts with a key 'params', got {kind}"
        )
    params = [item["params"]] if isinstance(item["params"], Tensor) else item["params"]
    return {**item, "params": [param[1] if isinstance(param, tuple) else param for param in params]}


class Layer:
    """Parameters that get one decision per step.

    Args:
        name: of the module.
        options: the param group itself; a value that is changed there, by a schedule say, holds from the next step on.
        seed: of the random draws of this layer.
    """

    def __init__(self, name: str, options: dict[str, Any], seed: int) -> None:
        self.name, self.options = name, options
        self.parameters: list[Tensor] = []
        self.memory = Memory()
        #: Draws evictions and batches.
        self.generator = torch.Generator().manual_seed(seed)
        self.sampler = Sampler(seed + 1)
        self.counts = dict.fromkeys(COUNTED, 0)
        #: The option values that were last checked.
        self.checked_options: tuple[Any, ...] = read_options(options)

    def add_parameters(self, parameters: Sequence[Tensor], options: dict[str, Any]) -> None:
        """Add parameters; those without entries have nothing to remember."""
        sized = [parameter for parameter in parameters if parameter.numel()]
        remaining = iter(sized)
        for part in make_parts([p.shape for p in sized], options, sized[0].device) if sized else ():
            own = [next(remaining) for _ in part.columns]
            self.memory.add_part(part, [is_channels_last(to_local(parameter)) for parameter in own])
        self.parameters += sized

    def replace_parameters(self, parameters: Sequence[Tensor]) -> None:
        """Watch parameters with more rows in place of its own; the directions are zero in the new rows."""
        self.memory.grow(lay_out([parameter.shape for parameter in parameters]))
        self.parameters[:] = parameters
        self.options["params"] = list(parameters)


def check_fits(groups: Sequence[dict[str, Any]]) -> None:
    """Raise a ValueError if full dense memories of these groups don't fit in the free memory of their device."""
    device = groups[0]["params"][0].device
    needed = sum(
        group["capacity"] * parameter.numel() * MEMORY_DTYPES[group["memory_dtype"]].itemsize
        for group in groups
        for parameter in group["params"]
        if group["storage"] == "dense" and parameter.requires_grad
    )
    free = count_free_bytes(device)
    if free is not None and needed > free:
        raise ValueError(
            f"`capacity` directions of all layers take {needed / 1e9:.1f} GB, but {device} has {free / 1e9:.1f} GB "
            "free; use storage='factored'"
        )


def count_free_bytes(device: torch.device) -> int | None:
    """Return the free memory of a device, None if it isn't known."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + cached
    try:
        # Free pages alone leave out what the system would give up, its page cache.
        with open("/proc/meminfo") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return None


# -- Parameters that change ------------------------------------------------------------------------------


def find_replaced(layers: Sequence[Layer], model: nn.Module) -> dict[Layer, list[Tensor]]:
    """Return the new parameters of layers whose own are no longer in the model, found by name.

    Raise a ValueError that names the first layer that is gone, or that changed in more than its number of rows.
    """
    there = set(model.parameters())
    by_name = {group["name"]: group["params"] for group in layer_groups(model, trainable_only=False)}
    found: dict[Layer, list[Tensor]] = {}
    for layer in layers:
        if there.issuperset(layer.parameters):
            continue
        own = [parameter for parameter in by_name.get(layer.name, ()) if parameter.numel()]
        if len(own) > len(layer.parameters):
            own = [parameter for parameter in own if parameter.requires_grad]
        if not own:
            raise ValueError(f"`model` must hold the gated layers, by their names, but has no layer {layer.name!r}")
        before, after = ([tuple(p.shape) for p in given] for given in (layer.parameters, own))
        columns = [[columns for _, columns in lay_out(shapes)] for shapes in (before, after)]
        pairs = zip(before, after, strict=False)
        has_grown = all(old[1:] == new[1:] and old[:1] <= new[:1] for old, new in pairs)
        if len(before) != len(after) or not has_grown or columns[0] != columns[1]:
            raise ValueError(f"layer {layer.name!r} may only grow by rows, got shapes {after} instead of {before}")
        found[layer] = own
    return found


def check_model(gate: "Gate") -> None:
    """Raise a RuntimeError if the model or the attached optimizer has parameters now that the gate doesn't know.

    That is a module that was replaced, or one that was added, where all parameters of the optimizer were gated.
    """
    if gate.model is None:
        return
    names = {group["name"] for group in layer_groups(gate.model, trainable_only=False)}
    there = set(gate.model.parameters())  # layer_groups has brought those of shards back
    for layer in gate.layers:
        is_there = layer.name in names or gate.granularity == "global"
        if is_there and not there.issuperset(layer.parameters):
            raise RuntimeError(
                f"the parameters of layer {layer.name!r} must stay in the model, but were replaced; call rebind(model)"
            )
    new = gate.find_ungated() if gate.covers_all else []
    if new:
        raise RuntimeError(
            f"a parameter of shape {tuple(new[0].shape)} came into the optimizer, but is in no layer of the gate; "
            "call rebind(model)"
        )
