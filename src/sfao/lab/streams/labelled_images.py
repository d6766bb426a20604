"""Images of a task with their labels, and the normalized batches they make."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import torch
from torch import Tensor

from sfao.checks import check_at_least_zero, check_count

Batch = tuple[Tensor, Tensor]

#: Pixels gathered and normalized in one go (2 MB of floats). One batch at a time costs three to ten times as much
#: in calls, and far larger pieces leave the cache.
CHUNK_VALUES = 2**19


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Some images of a data set, by index: the pixels stay uint8, shared with all others of the data set.

    `labels` are those of `indices`, as the scenario gives them. With a `permutation`, pixel p of an image is
    pixel permutation[p] of the data set's, in every channel. Without `mean` and `std`, inputs of any shape and type
    are used as they are.
    """

    images: Tensor
    indices: Tensor
    labels: Tensor
    mean: tuple[float, ...]
    std: tuple[float, ...]
    permutation: Tensor | None = None

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def bytes(self) -> int:
        """The bytes that copies of these images and labels would take."""
        return len(self) * self.images[:1].nbytes + self.labels.nbytes

    def batches(
        self,
        batch_size: int,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        start: int = 0,
    ) -> Iterator[Batch]:
        """Yield one pass: float32 images (B, C, H, W), (x / 255 - mean) / std, or inputs as they are, and int64 labels.

        Args:
            batch_size: images per batch; the last one may have fewer.
            generator: shuffles the pass; drawn from once, in this call. None keeps the order of the indices.
            device: where the batches are made.
            start: leaves out the first batches of the pass without touching their pixels, to resume there.

        Batches are views of larger chunks: a batch that is kept keeps its chunk in memory.
        """
        check_count("batch_size", batch_size)
        check_at_least_zero("start", start)
        order = _draw_order(len(self), generator)
        device = self.images.device if device is None else torch.device(device)
        return self._make_batches(order[start * batch_size :], batch_size, device)

    def as_sequence(
        self, batch_size: int, generator: torch.Generator | None = None, device: torch.device | str | None = None
    ) -> "BatchSequence":
        """Return the batches that `batches` would yield as a sequence that makes each one on access."""
        return BatchSequence(self, batch_size, generator, device)

    def _make_batches(self, order: Tensor, batch_size: int, device: torch.device) -> Iterator[Batch]:
        shape = self.images.shape[1:]
        if not self.std:
            for positions in torch.split(order, batch_size) if len(order) else ():
                yield self.images[self.indices[positions]].to(device), self.labels[positions].to(device)
            return
        pixels = self.images.flatten(2)
        permutation = None if self.permutation is None else self.permutation.to(device)
        scale, shift = _find_scale(self.mean, self.std, device)
        batches_per_chunk = max(1, CHUNK_VALUES // (shape.numel() * batch_size))
        for positions in torch.split(order, batches_per_chunk * batch_size) if len(order) else ():
            chosen = pixels.index_select(0, self.indices[positions]).to(device)
            values = chosen.float().div_(scale).sub_(shift)
            if permutation is not None:
                # Torch selects columns of a matrix of floats several times as fast as of bytes or of three dimensions.
                values = values.flatten(0, 1).index_select(1, permutation)
            images, labels = values.view(-1, *shape), self.labels[positions].to(device)
            yield from zip(torch.split(images, batch_size), torch.split(labels, batch_size), strict=True)


class BatchSequence(Sequence[Batch]):
    """One pass over labelled images as a sequence; see `LabelledImages.as_sequence`."""

    def __init__(
        self,
        source: LabelledImages,
        batch_size: int,
        generator: torch.Generator | None,
        device: torch.device | str | None,
    ) -> None:
        check_count("batch_size", batch_size)
        self._source, self._batch_size = source, batch_size
        self._order = _draw_order(len(source), generator)
        self._device = source.images.device if device is None else torch.device(device)

    def __len__(self) -> int:
        return -(-len(self._order) // self._batch_size)

    @overload
    def __getitem__(self, number: int) -> Batch: ...
    @overload
    def __getitem__(self, number: slice) -> list[Batch]: ...
    def __getitem__(self, number: int | slice) -> Batch | list[Batch]:
        if isinstance(number, slice):
            return [self[one] for one in range(*number.indices(len(self)))]
        start = range(len(self))[number] * self._batch_size  # IndexError past the end
        positions = self._order[start : start + self._batch_size]
        return next(self._source._make_batches(positions, self._batch_size, self._device))


def _draw_order(count: int, generator: torch.Generator | None) -> Tensor:
    """Return the order of one pass: shuffled by the generator, which is drawn from once, or as it is."""
    return torch.arange(count) if generator is None else torch.randperm(count, generator=generator)


def _find_scale(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return columns that make x / scale - shift of (x / 255 - mean) / std; with mean 0 and std 1, exactly x / 255."""
    return 255 * _as_column(std, device), _as_column(mean, device) / _as_column(std, device)


def _as_column(values: tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device=device)[:, None]
