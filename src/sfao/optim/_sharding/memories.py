"""Empty memories of a layer, or of a rank's shard of one."""

from collections.abc import Sequence

import torch

from sfao.gating._block import Block
from sfao.gating._layout import Layout
from sfao.gating.dense import DenseBlock
from sfao.gating.factored import FactoredBlock, FactoredShard
from sfao.gating.input_moments import PROBES
from sfao.gating.storage import Storage
from sfao.gating.subspace import Subspace
from sfao.optim._sharding.shards import Shards, cut_layout


def make_block(storage: Storage, layout: Layout, shapes: Sequence[Sequence[int]], shards: Shards | None) -> Block:
    """Return a block for directions of parameters of these shapes, or of a rank's rows of them."""
    whole = storage.make(layout)
    if shards is None:
        return whole
    own = cut_layout(layout, shapes, shards)
    # What saves memory is decided by the whole: every rank holds the same kind.
    if isinstance(whole, FactoredBlock):
        return FactoredShard(own, whole.dtype, whole.rank, [shards.own(columns) for columns in layout.columns])
    return DenseBlock(own, whole.dtype)


def make_space(layout: Layout, shards: Shards | None) -> Subspace:
    """Return an empty input space: of a rank, the answers of its rows, and some columns of axes and probes."""
    if shards is None:
        return Subspace(layout)
    space = Subspace(Layout(shards.own(layout.rows), layout.columns), layout.rows)
    width = shards.own(layout.width)
    space.axes, space.probes = torch.zeros(0, width), torch.zeros(PROBES, width)
    return space
