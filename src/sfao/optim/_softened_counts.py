"""The counts, on a device, of what softening made of gradients that directions had decided on."""

from collections.abc import Sequence

import torch
from torch import Tensor

from sfao.gating.decision import ACCEPTED, ZERO
from sfao.gating.softness import ALL, NOTHING
from sfao.optim._softening import Softening
from sfao.optim.layers import Layer


class SoftenedCounts:
    """Counts, on the device, gradients that directions accepted, or saw as zero, and softening did not leave whole."""

    def __init__(self, codes: Tensor) -> None:
        #: By layer: projected, and discarded because nothing was left, accepted ones and those that were seen as zero.
        self._counts = torch.zeros(len(codes), 3, dtype=torch.int64, device=codes.device)
        self._places: tuple[int, Tensor, Tensor] | None = None

    def count(self, layers: Sequence[Layer], softening: Softening, codes: Tensor, sound: Tensor) -> None:
        if self._places is None or self._places[0] != id(softening):
            # Sent once: a graph that is captured later must not wait for the host.
            pairs = [(number, layers.index(layer)) for number, layer in enumerate(softening.layers) if layer in layers]
            table = torch.tensor(pairs, dtype=torch.int64, device=codes.device).reshape(-1, 2)
            self._places = id(softening), table[:, 0].contiguous(), table[:, 1].contiguous()
        _, chosen, numbers = self._places
        shares = softening.shares[chosen]
        is_gone = shares <= NOTHING
        is_softened = (shares <= ALL) & (codes[numbers] == ACCEPTED) & sound
        is_emptied = is_gone & (codes[numbers] == ZERO) & sound
        outcome = torch.stack([is_softened & ~is_gone, is_softened & is_gone, is_emptied], 1)
        self._counts.index_add_(0, numbers, outcome.to(self._counts.dtype))

    def hand_over(self, layers: Sequence[Layer]) -> None:
        for layer, (projected, discarded, emptied) in zip(layers, self._counts.tolist(), strict=True):
            moved = {
                "accept": -projected - discarded,
                "zero": -emptied,
                "project": projected,
                "discard": discarded + emptied,
            }
            layer.counts.update({name: count + moved[name] for name, count in layer.counts.items()})
        self._counts.zero_()
