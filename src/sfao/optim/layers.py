"""Layers: the parameters that are gated together."""

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import count
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

from sfao.gating._layout import Layout, lay_out
from sfao.gating.decision import COUNTED
from sfao.gating.memories import MEMORIES
from sfao.gating.memory import Memory
from sfao.gating.options import DEFAULTS, FIXED, check_options
from sfao.gating.rules import RULES
from sfao.gating.storage import Storage
from sfao.gating.subspace import Subspace
from sfao.optim._sharding.memories import make_block, make_space
from sfao.optim._sharding.shards import Shards, check_not_flat, has_rows, reshard
from sfao.optim._travel import Travel

#: What an optimizer takes: tensors, (name, tensor) pairs, or param groups.
Parameters = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]

#: Returns the values of all options of a param group.
read_options = itemgetter(*DEFAULTS)


#: Names that wrappers give to what they wrap: torch.compile, FSDP and activation checkpointing.
WRAPPED = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
#: Wrappers that call it `module`, a name that others may have too.
PARALLEL = (nn.parallel.DistributedDataParallel, nn.DataParallel)


def layer_groups(model: nn.Module, *, trainable_only: bool = True) -> list[dict[str, Any]]:
    """Return one named param group for every module that has parameters of its own.

    A parameter shared by several modules belongs to the first. Names are those in the bare model, whatever wraps it.

    Args:
        trainable_only: leave out frozen parameters, which take no part and no memory. Include them, with False, if
            they are to be trained later: they take part as soon as they have gradients.
    """
    check_not_flat(model)
    reshard(model)
    groups: list[dict[str, Any]] = []
    seen: set[Tensor] = set()
    wrappers = {path for path, module in model.named_modules() if isinstance(module, PARALLEL)}
    for path, module in model.named_modules():
        own = [parameter for parameter in module.parameters(recurse=False) if parameter not in seen]
        seen.update(own)
        if trainable_only:
            own = [parameter for parameter in own if parameter.requires_grad]
        if own:
            groups.append({"params": own, "name": _strip_wrappers(path, wrappers)})
    return groups


def _strip_wrappers(path: str, wrappers: Container[str]) -> str:
    """Return the path of a module without the names of wrappers, some of which, at these paths, say `module`."""
    parts = path.split(".")
    kept = [
        part
        for number, part in enumerate(parts)
        if part not in WRAPPED and not (part == "module" and ".".join(parts[:number]) in wrappers)
    ]
    return ".".join(kept) or "(root)"


def strip_saved_name(name: str) -> str:
    """Return the name of a layer as `layer_groups` gives it, of one saved when wrappers were part of names."""
    parts = [part for part in name.split(".") if part not in WRAPPED]
    return ".".join(parts[1:] if parts[:1] == ["module"] else parts) or "(root)"


def as_groups(parameters: Parameters, taken: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return named param groups; every bare tensor becomes a group, hence a layer, of its own.

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


def describe_groups(
    kind: str, layers: int, granularity: str, groups: Sequence[dict[str, Any]], defaults: Mapping[str, Any]
) -> str:
    """Return a line on an optimizer or a gate over these groups."""
    first = groups[0]
    shared = {name for name in defaults if all(group[name] == first[name] for group in groups)}
    parts = [f"{layers} layer{'s' if layers > 1 else ''}"]
    parts += ["granularity='global'"] if granularity == "global" else []
    parts += [f"{name}={first[name]!r}" for name in defaults if name in shared and first[name] != defaults[name]]
    parts += [f"{name} per layer" for name in defaults if name not in shared]
    return f"{kind}({', '.join(parts)})"


class Layer:
    """Parameters that get one decision per step, with their memory, their rule and their counts.

    `options` is the param group itself: a value that is changed there, by a threshold schedule say, holds from the
    next step on.
    """

    def __init__(
        self, name: str, options: dict[str, Any], generator: torch.Generator, shards: Shards | None = None
    ) -> None:
        self.name = name
        self.options = options
        self.parameters: list[Tensor] = []
        #: The ranks that hold the parameters in shards: what is remembered here is then of this one's rows.
        self.shards, self.in_shards = shards, shards is not None
        self._cut_layouts: list[Layout] = []
        #: Which of the matrices that the parameters are laid out in are cut by their rows.
        self.have_rows: list[bool] = []
        #: Directions of past gradients, and the spaces of past inputs, one for each block of the parameters.
        self.memory = Memory([], options["capacity"], generator)
        self.spaces: list[Subspace] = []
        self.travel = Travel()
        #: Another number whenever the spaces are others.
        self.space_version = 0
        #: True once the user has been told that some of its parameters have no input space.
        self.was_warned_of = False
        self.counts = dict.fromkeys(COUNTED, 0)
        #: What the layer stores: directions, the subspace of its inputs, or both.
        self.memories = MEMORIES[options["memory"]]
        self.rule = RULES[options["rule"]]
        #: The state that the rule keeps from step to step.
        self.rule_state = self.rule.initial_state()
        self._accept_options()

    def add_parameters(self, parameters: list[Tensor], options: dict[str, Any]) -> None:
        """Take in parameters; those without entries have nothing to remember."""
        sized = [parameter for parameter in parameters if parameter.numel()]
        storage = Storage.of(options)
        shapes = iter([tuple(parameter.shape) for parameter in sized])
        for layout in lay_out([parameter.shape for parameter in sized]):
            of_layout = [next(shapes) for _ in layout.columns]
            self._cut_layouts.append(layout)
            self.have_rows.append(has_rows(layout, of_layout))
            self.memory.add_block(make_block(storage, layout, of_layout, self.shards))
            self.spaces.append(make_space(layout, self.shards))
        self.parameters += sized
        self.share_products(self.memory)

    @property
    def whole_layouts(self) -> list[Layout]:
        """How the whole parameters are laid out, whoever holds them."""
        return self.memory.products.layouts if self.shards is None else self._cut_layouts

    def share_products(self, memory: Memory) -> None:
        """Let a memory of this layer's sum its products over all ranks that hold its rows."""
        if self.shards is not None:
            memory.products.share(self.shards.total, [parameter.numel() for parameter in self.parameters])

    @property
    def remembers_inputs(self) -> bool:
        return any(not space.is_empty for space in self.spaces)

    @property
    def is_soft(self) -> bool:
        """True if what is kept along an axis is never nothing: products may then be rounded as the model's are."""
        return self.memories == ("subspace",) and 0 < self.options["keep"] < 1

    def set_spaces(self, spaces: list[Subspace]) -> None:
        """Remember these input spaces from now on."""
        self.spaces = spaces
        self.space_version += 1

    def check_options(self) -> None:
        """Raise a ValueError if the options, which anyone may change, break a rule."""
        values = read_options(self.options)
        if values == self.checked_options:
            return
        check_options(self.options)
        for name, before, now in zip(DEFAULTS, self.checked_options, values, strict=True):
            if name in FIXED and now != before:
                raise ValueError(f"`{name}` is fixed when a layer is made ({before!r}), got {now!r} for {self.name!r}")
        self._accept_options()

    def _accept_options(self) -> None:
        #: The options when they were last checked, and those of the rule as it takes them.
        self.checked_options: tuple[object, ...] = read_options(self.options)
        self.rule_numbers = self.rule.numbers(self.options)

    def adopt(
        self,
        options: dict[str, Any],
        memory: Memory,
        spaces: list[Subspace],
        travel: Travel,
        counts: dict[str, int],
        rule_state: tuple[float, ...],
    ) -> None:
        """Go on with another memory, as when a state is loaded."""
        self.set_spaces(spaces)
        self.travel = travel
        self.options, self.memory, self.counts, self.rule_state = options, memory, dict(counts), rule_state
        self.memories = MEMORIES[options["memory"]]
        self.rule = RULES[options["rule"]]
        self._accept_options()
