"""What a gate checks at every step: its options, its parameters, the weights that a loaded memory is of."""

from typing import Any

from torch import Tensor

from sfao.optim._attachment import Attachment
from sfao.optim._membership import check_members
from sfao.optim._planning import check_same_options
from sfao.optim._sketch import check_sketches
from sfao.optim.layers import Layer, read_options


class Checks:
    """Methods of a gate that raise before anything is changed."""

    layers: list[Layer]
    param_groups: list[dict[str, Any]]
    granularity: str
    _attachment: Attachment | None
    _checked: list[Tensor]
    _unseen: dict[str, list[float]]
    _postponed: Exception | None

    def _check_layers(self) -> None:
        """Raise a RuntimeError if the layers' parameters are not those of the groups, or not those remembered."""
        if self._postponed is not None:
            postponed, self._postponed = self._postponed, None
            raise postponed
        if self._attachment is None:
            members = [parameter for group in self.param_groups for parameter in group["params"]]
            known = self._checked
            if len(members) != len(known) or any(a is not b for a, b in zip(members, known, strict=True)):
                check_members(self.layers, members, ())
                self._checked = members
        self._check_weights()

    def _check_weights(self) -> None:
        """Raise a RuntimeError if the memory was loaded beside other weights than it is of."""
        if self._unseen:
            check_sketches(self.layers, self._unseen)
            self._unseen = {}

    def _check_options(self) -> None:
        """Raise a ValueError if an option breaks its rule."""
        for layer in self.layers:
            if read_options(layer.options) != layer.checked_options:
                layer.check_options()
        if self.granularity == "global":
            for group in self.param_groups[1:]:
                check_same_options(group, self.param_groups[0])
