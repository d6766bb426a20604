"""The whole weights that stand in for sharded ones while a module of fully_shard runs."""

from collections.abc import Container

from torch import Tensor, nn

from sfao.optim._sharding.shards import is_sharded, reshard


class StandIns:
    """Finds the weight that a tensor in a call is, or stands in for: fully_shard puts others in their places."""

    def __init__(self, model: nn.Module, weights: Container[Tensor]) -> None:
        reshard(model)
        self._weights = weights
        self._places = [
            (module, name, parameter)
            for module in model.modules()
            for name, parameter in module.named_parameters(recurse=False)
            if is_sharded(parameter) and parameter in weights
        ]

    def find(self, tensor: Tensor) -> Tensor | None:
        """Return the weight, None for a tensor that is none."""
        if tensor in self._weights:
            return tensor
        for module, name, weight in self._places:
            if module._parameters.get(name) is tensor:
                return weight
        return None
