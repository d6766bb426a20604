"""What ranks that train one model must have in common: the gate's set-up, its memories, its decisions."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from sfao.gating.memory import Memory
from sfao.gating.subspace import Subspace
from sfao.optim._consolidation.batches import Request
from sfao.optim._consolidation.joint import join_request
from sfao.optim._digest import digest
from sfao.optim._ranks import Ranks, find_others, name_ranks
from sfao.optim._sketch import sketch
from sfao.optim.layers import Layer, read_options

if TYPE_CHECKING:
    from sfao.optim.gate import Gate

#: Steps between looks at whether the decisions of all ranks are the same.
EVERY = 100
#: Weights of ranks may differ by this, relative to their length, which is rounding.
ROUNDING = 1e-4


def store_together(gate: "Gate", ranks: Ranks, model: nn.Module, request: Request) -> int:
    """Store what the batches of all ranks hold, the same on every rank, or nothing on any."""
    with ranks.agree_on_failure():
        kind = isinstance(request.batches, Sequence)
        check_alike(gate, ranks, (request.target, request.per, request.limit, request.objective is None, kind))
        joint = join_request(request, ranks) if has_own_batches(gate, model) else request
        stored = gate.store(model, joint, lambda: ranks.gather(None))
    if gate.shards is None and find_others(ranks.gather(digest_memories(gate.layers))):
        share_memories(gate.layers, ranks)
    return stored


def check_alike(gate: "Gate", ranks: Ranks, arguments: object) -> None:
    """Raise a ValueError that names the ranks whose layers, options, arguments, memories or weights are others."""
    layers = gate.layers
    facts = {
        "layers": [(layer.name, [tuple(parameter.shape) for parameter in layer.parameters]) for layer in layers],
        "options": [read_options(layer.options) for layer in layers],
        "arguments of consolidate()": arguments,
        "memories": (gate.task, digest_memories(layers) if gate.shards is None else _count(layers)),
    }
    gathered = ranks.gather((facts, [sketch(layer) for layer in layers]))
    for name in facts:
        others = find_others([of_rank[name] for of_rank, _ in gathered])
        if others:
            raise ValueError(f"the {name} must be the same on all ranks, but are others on {name_ranks(others)}")
    if gate.shards is not None:
        return  # each has weights of its own
    first = torch.tensor(gathered[0][1], dtype=torch.float64, device="cpu")
    sketches = [torch.tensor(of_rank, dtype=torch.float64, device="cpu") for _, of_rank in gathered]
    gaps = [float((of_rank - first).norm()) for of_rank in sketches]
    others = [rank for rank, gap in enumerate(gaps) if not gap <= ROUNDING * float(first.norm())]
    if others:
        raise ValueError(f"the weights must be the same on all ranks, but are others on {name_ranks(others)}")


def has_own_batches(gate: "Gate", model: nn.Module) -> bool:
    """Tell whether every rank brings batches of its own: not those that hold one model by tensor parallel."""
    if gate.shards is None:
        return True
    from sfao.optim._sharding.store import is_data_parallel

    return is_data_parallel(model)


def _count(layers: list[Layer]) -> list[tuple[int, list[int]]]:
    return [(len(layer.memory), [len(space.moments) for space in layer.spaces]) for layer in layers]


def digest_memories(layers: list[Layer]) -> str:
    """Return a digest of what the layers remember, to the last bit."""
    return digest([_write(layer) for layer in layers])


def _write(layer: Layer) -> dict[str, Any]:
    held = layer.memory.state_dict()
    # The sampler's draws are counted by steps, the products follow from the directions.
    memory = {name: held[name] for name in held if name not in ("sampler", "products")}
    return {"memory": memory, "spaces": [space.state_dict() for space in layer.spaces]}


def share_memories(layers: list[Layer], ranks: Ranks) -> None:
    """Let all ranks hold the memories of the first: theirs differ by the rounding of other machines."""
    held = [(layer.memory.state_dict(), [space.state_dict() for space in layer.spaces]) for layer in layers]
    for layer, (memory, spaces) in zip(layers, ranks.share(held), strict=True):
        device, layouts = layer.parameters[0].device, layer.memory.products.layouts
        layer.memory = Memory.from_state_dict(memory, layouts, device)
        found = zip(spaces, layouts, strict=True)
        layer.set_spaces([Subspace.from_state_dict(space, layout, device) for space, layout in found])


class DecisionCheck:
    """Compares the decisions of all ranks, every so many steps."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._steps = 0

    def count(self, gate: "Gate") -> None:
        """Count a step; raise a RuntimeError that names the ranks that have decided otherwise."""
        self._steps += 1
        if self._steps % EVERY:
            return
        counts = {name: list(of_layer.values()) for name, of_layer in gate.counts.items()}
        number = int(digest([gate.task, counts])[:15], 16)
        others = self._ranks.compare(number)
        if others:
            raise RuntimeError(
                f"the decisions of all ranks must be the same, but since the last look, {EVERY} steps ago, "
                f"{name_ranks(others)} decided otherwise than rank 0: their gradients or weights are others"
            )
