"""The images of many runs at once: one batch holds a batch of each run, drawn in that run's own order."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from sfao.streams.labelled_images import Batch, LabelledImages, find_scale


class StackedImages:
    """Equally many images of each run, by index. The pixels are on the device once, whoever uses them.

    Args:
        parts: of each run, of one shape and one scale.
        device: where the batches are made.
    """

    def __init__(self, parts: Sequence[LabelledImages], device: torch.device) -> None:
        self._parts, self._device = parts, device
        sources, places = _share_images([part.images for part in parts])
        self._images = (sources[0] if len(sources) == 1 else torch.cat(sources)).to(device)
        starts = torch.tensor([0, *map(len, sources)]).cumsum(0)
        self._indices = torch.stack(
            [part.indices + starts[place] for part, place in zip(parts, places, strict=True)]
        ).to(device)
        self._labels = torch.stack([part.labels for part in parts]).to(device)
        self._permutations = self._stack_permutations()
        self._scale = find_scale(parts[0].mean, parts[0].std, device) if parts[0].std else None

    def __len__(self) -> int:
        """The number of images of each run."""
        return self._indices.shape[1]

    def _stack_permutations(self) -> Tensor | None:
        if all(part.permutation is None for part in self._parts):
            return None
        plain = torch.arange(self._images.shape[2:].numel())
        held = [plain if part.permutation is None else part.permutation for part in self._parts]
        return torch.stack(held).to(self._device)

    def batches(self, orders: Tensor, batch_size: int, start: int = 0) -> Iterator[Batch]:
        """Yield one pass in these orders (runs x images) from batch `start` on: inputs (runs x batch x ...), labels.

        What each run sees is what :meth:`LabelledImages.batches` yields in that order.
        """
        for positions in orders.to(self._device)[:, start * batch_size :].split(batch_size, 1):
            if positions.shape[1]:
                yield self._make_batch(positions)

    def _make_batch(self, positions: Tensor) -> Batch:
        chosen = self._images[self._indices.gather(1, positions)]
        labels = self._labels.gather(1, positions)
        if self._scale is None:
            return chosen, labels
        scale, shift = self._scale
        values = chosen.flatten(3).float().div_(scale).sub_(shift)
        if self._permutations is not None:
            values = values.gather(3, self._permutations[:, None, None].expand_as(values))
        return values.view(chosen.shape), labels


def _share_images(images: Sequence[Tensor]) -> tuple[list[Tensor], list[int]]:
    """Return the images that differ, and which of them each run has."""
    sources: list[Tensor] = []
    places = []
    for own in images:
        known = (number for number, source in enumerate(sources) if own is source or torch.equal(own, source))
        place = next(known, len(sources))
        if place == len(sources):
            sources.append(own)
        places.append(place)
    return sources, places
