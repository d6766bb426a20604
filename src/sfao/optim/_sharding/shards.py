"""The ranks among which the parameters of a model are cut, and the rows that each of them works on."""

import sys
from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn

from sfao.gating._layout import Layout
from sfao.optim._lost_rank import explain_loss

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor


#: Its name since torch 2.13, and the one before.
gather_flat = getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor


class Shards:
    """The ranks of one dimension of a mesh; each works on its rows of every parameter, in the order of torch.chunk."""

    def __init__(self, mesh: "DeviceMesh", dim: int) -> None:
        self.mesh, self.dim = mesh, dim
        self._group = mesh.get_group(dim)
        self.rank: int = mesh.get_local_rank(dim)
        self.size: int = mesh.size(dim)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shards) and (self.mesh, self.dim) == (other.mesh, other.dim)

    def __hash__(self) -> int:
        return hash((self.mesh, self.dim))

    def cut(self, count: int, rank: int | None = None) -> slice:
        """Return which of `count` rows, or other things, are a rank's, by default this one's."""
        most = self.most(count)
        start = min((self.rank if rank is None else rank) * most, count)
        return slice(start, min(start + most, count))

    def own(self, count: int, rank: int | None = None) -> int:
        """Return how many of `count` rows are a rank's."""
        part = self.cut(count, rank)
        return int(part.stop - part.start)

    def most(self, count: int) -> int:
        """Return how many of `count` rows a rank has at most."""
        return -(-count // self.size)

    def take(self, whole: Tensor, dim: int, count: int) -> Tensor:
        """Return this rank's part of a tensor, cut along a dimension of `count` entries."""
        if whole.shape[dim] != count:
            raise ValueError(f"a tensor of shape {tuple(whole.shape)} where {count} entries were expected")
        part = self.cut(count)
        return whole.narrow(dim, part.start, part.stop - part.start).clone(memory_format=torch.contiguous_format)

    def wrap(self, own: Tensor, dim: int, count: int) -> Tensor:
        """Return this rank's part of a tensor as a DTensor, which says what it is a part of."""
        from torch.distributed.tensor import DTensor, Replicate, Shard

        shape = torch.Size([*own.shape[:dim], count, *own.shape[dim + 1 :]])
        placements = [Shard(dim) if number == self.dim else Replicate() for number in range(self.mesh.ndim)]
        stride = torch.empty(shape, device="meta").stride()
        return DTensor.from_local(own.contiguous(), self.mesh, placements, run_check=False, shape=shape, stride=stride)

    def unwrap(self, saved: Tensor, dim: int, count: int) -> Tensor:
        """Return this rank's part of a tensor that was saved by it, or whole."""
        if not is_sharded(saved):
            return self.take(saved, dim, count)
        sharded: DTensor = saved  # type: ignore[assignment]
        if sharded.device_mesh.size() != self.mesh.size():
            raise ValueError(
                f"shards that {sharded.device_mesh.size()} ranks saved, each its own, must be loaded by as many, got "
                f"{self.mesh.size()}; to change their number, save by torch.distributed.checkpoint: "
                "sfao.integrations.dcp"
            )
        own = sharded.to_local()
        if sharded.shape[dim] != count or own.shape[dim] != self.own(count):
            raise ValueError(f"a shard of shape {tuple(own.shape)} where {self.own(count)} of {count} were expected")
        return own.contiguous()

    # -- Collectives: all ranks call these in the same order, whatever they hold --------------------------

    def total(self, tensor: Tensor) -> Tensor:
        """Return the sum of the tensors of all ranks, the same bits on each."""
        found = tensor.clone()
        with explain_loss("the gate's sums"):
            distributed.all_reduce(found, group=self._group)
        return found

    def ask(self, is_so: bool) -> bool:
        """Tell whether it is so on any rank."""
        device = "cuda" if "nccl" in distributed.get_backend(self._group) else "cpu"
        return bool(self.total(torch.tensor([float(is_so)], device=device)))

    def gather(self, own: Tensor) -> Tensor:
        """Return the tensors of all ranks, of one shape, numbered in a new first dimension."""
        found = own.new_empty(self.size * own.numel())
        with explain_loss("the gate's memories"):
            gather_flat(found, own.reshape(-1), group=self._group)
        return found.view(self.size, *own.shape)

    def join(self, own: Tensor, dim: int, count: int) -> Tensor:
        """Return the whole of a tensor that is cut along a dimension into `count` rows."""
        padding = own.new_zeros(*own.shape[:dim], self.most(count) - own.shape[dim], *own.shape[dim + 1 :])
        # Every dtype travels as bytes.
        padded = torch.cat([own, padding], dim).contiguous()
        if not padded.numel():
            return own.new_empty(*own.shape[:dim], count, *own.shape[dim + 1 :])
        found = self.gather(padded.view(torch.uint8)).view(padded.dtype)
        return torch.cat(list(found), dim).narrow(dim, 0, count).contiguous()

    def exchange(self, pieces: Sequence[Sequence[Tensor]], sizes: Sequence[int]) -> list[Tensor]:
        """Send each rank its pieces, flat, and return what each has sent: so many entries."""
        sent = torch.cat([piece.reshape(-1) for of_rank in pieces for piece in of_rank])
        counts = [sum(piece.numel() for piece in of_rank) for of_rank in pieces]
        found = sent.new_empty(sum(sizes))
        with explain_loss("the gate's rows"):
            distributed.all_to_all_single(found, sent, list(sizes), counts, group=self._group)
        return list(found.split(list(sizes)))


def is_sharded(tensor: object) -> bool:
    """Tell whether this is a DTensor; torch's module of them is not imported for asking."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def reshard(model: nn.Module) -> None:
    """Let a model hold its parameters: between passes fully_shard may leave others in their places."""
    module = sys.modules.get("torch.distributed.fsdp")
    for part in model.modules() if module is not None and hasattr(module, "FSDPModule") else ():
        if isinstance(part, module.FSDPModule):  # type: ignore[union-attr]
            part.reshard()


def check_not_flat(model: nn.Module) -> None:
    """Raise a ValueError for a model whose parameters ranks hold as flat pieces, which have no rows."""
    module = sys.modules.get("torch.distributed.fsdp")
    if module is not None and any(isinstance(part, module.FullyShardedDataParallel) for part in model.modules()):
        raise ValueError(
            "`model` must be sharded by torch.distributed.fsdp.fully_shard, got FullyShardedDataParallel, "
            "whose parameters are flat pieces without rows"
        )


def localise(tensor: Tensor) -> Tensor:
    """Return what this rank holds of a tensor."""
    if not is_sharded(tensor):
        return tensor
    sharded: DTensor = tensor  # type: ignore[assignment]
    return sharded.to_local()


def place_like(own: Tensor, parameter: Tensor) -> Tensor:
    """Return what this rank holds of a tensor as one that is cut as its parameter is."""
    if not is_sharded(parameter):
        return own
    from torch.distributed.tensor import DTensor

    mesh, placements = parameter.device_mesh, parameter.placements  # type: ignore[attr-defined]
    return DTensor.from_local(own, mesh, placements, run_check=False, shape=parameter.shape, stride=parameter.stride())


def cut_like(whole: Tensor, parameter: Any) -> Tensor:
    """Return a whole tensor cut as its parameter is."""
    own, mesh = whole, parameter.device_mesh
    for number, placement in enumerate(parameter.placements):
        if placement.is_shard():
            own = Shards(mesh, number).take(own, placement.dim, parameter.shape[placement.dim])
    return place_like(own, parameter)


def make_whole(tensor: Tensor) -> Tensor:
    """Return a tensor with the entries of all ranks: of a DTensor, all of them must ask for it."""
    if not is_sharded(tensor):
        return tensor
    sharded: DTensor = tensor  # type: ignore[assignment]
    with explain_loss("a tensor"):
        return sharded.full_tensor()


def find_dim(parameter: Tensor) -> int | None:
    """Return the dimension along which a parameter is cut, None if each rank holds all of it."""
    if not is_sharded(parameter):
        return None
    return next((placement.dim for placement in parameter.placements if placement.is_shard()), None)  # type: ignore[attr-defined]


def find_shards(groups: Iterable[tuple[str, Sequence[Tensor]]]) -> Shards | None:
    """Return the ranks that hold these layers, named, in shards; None if there are no shards at all.

    A ValueError that names the layer for parameters that no rank could work on by its rows.
    """
    found: dict[tuple[Any, int], str] = {}
    whole: Any = None
    for name, parameters in groups:
        kinds = [is_sharded(parameter) for parameter in parameters]
        if any(kinds) and not all(kinds):
            raise ValueError(
                f"the parameters of a layer must all be DTensors or all be plain, but {name!r} has both; shard or "
                "distribute the whole layer, or let it be two param groups"
            )
        for parameter in parameters if any(kinds) else ():
            place = _find_place(name, parameter)
            whole = parameter.device_mesh  # type: ignore[attr-defined]
            if place is not None:
                found.setdefault(place, name)
    if len(found) > 1:
        (first, _), (second, _) = ((name, place) for place, name in list(found.items())[:2])
        raise ValueError(
            "all parameters must be sharded over the same ranks, one dimension of one mesh, but those of "
            f"{first!r} and {second!r} are not; make fully_shard or parallelize_module use one mesh"
        )
    if found:
        return Shards(*next(iter(found)))
    return None if whole is None else Shards(whole, 0)


def _find_place(name: str, parameter: Any) -> tuple[Any, int] | None:
    """Return the mesh, and its dimension, over which a parameter is cut; None if it is on every rank."""
    from torch.distributed.tensor import Replicate, Shard

    placements = parameter.placements
    cut = [number for number, placement in enumerate(placements) if placement != Replicate()]
    for number in cut:
        placement = placements[number]
        if type(placement) is not Shard or placement.dim not in (0, 1) or placement.dim >= max(parameter.ndim, 1):
            raise ValueError(
                f"the parameters of {name!r} must be cut along their first or second dimension, got {placement}"
            )
    if len(cut) > 1:
        raise ValueError(
            f"the parameters of {name!r} must be sharded over one dimension of the mesh, got {tuple(placements)}; "
            "use fully_shard or tensor parallel, not both"
        )
    return (parameter.device_mesh, cut[0]) if cut else None


def cut_shape(shape: Sequence[int], shards: Shards, rank: int | None = None) -> tuple[int, ...]:
    """Return the shape of a rank's rows of a parameter; a scalar is one row."""
    first, *others = shape or (1,)
    return (shards.own(first, rank), *others)


def cut_layout(layout: Layout, shapes: Sequence[Sequence[int]], shards: Shards) -> Layout:
    """Return the layout of a rank's rows of parameters of these shapes, laid out so.

    Vectors that go with no weight are one row, of which a rank has some columns.
    """
    if has_rows(layout, shapes):
        return Layout(shards.own(layout.rows), layout.columns)
    return Layout(1, tuple(prod(cut_shape(shape, shards)) for shape in shapes))


def has_rows(layout: Layout, shapes: Sequence[Sequence[int]]) -> bool:
    """Tell whether the rows of the matrix are those of all its parameters."""
    return len(shapes[0]) >= 2 and all((shape or (1,))[0] == layout.rows for shape in shapes)
