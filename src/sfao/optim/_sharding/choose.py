"""How a gate begins: on the host, or over the shards of several ranks."""

from sfao.optim._gate_path import Path, PathHistory, Report
from sfao.optim._host_path import HostPath
from sfao.optim._sharding.sharded_path import ShardedPath
from sfao.optim._sharding.shards import Shards
from sfao.optim._softening import Softening
from sfao.optim.layers import Layer


def make_path(layers: list[Layer], shards: Shards | None, history: PathHistory, report: Report | None = None) -> Path:
    """Return the path that gates these layers until another is chosen."""
    return HostPath(layers, history, report) if shards is None else ShardedPath(layers, shards, history, report)


def make_softening(path: Path, layers: list[Layer]) -> Softening:
    """Return the softening by the input spaces that are remembered now."""
    return path.make_softening() if isinstance(path, ShardedPath) else Softening(layers)
