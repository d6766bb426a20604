"""A part of a task: which images, with which labels, and the normalised batches they make."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import torch
from torch import Tensor

from sfao.checks import check_at_least_zero, check_count

Batch = tuple[Tensor, Tensor]

#: Pixels gathered and normalised in one go (2 MB of floats). One batch at a time costs three to ten times as much
#: in calls, and far larger pieces leave the cache.
CHUNK_VALUES = 2**19


@dataclass(frozen=True, eq=False)
class Part:
    """Some images of a data set, by index: the pixels stay uint8, shared with every other part.

    `labels` are those of `indices`, as the scenario gives them. With a `permutation`, pixel p of an image is
    its pixel permutation[p], in every channel.
    """

    images: Tensor
    indices: Tensor
    labels: Tensor
    mean: tuple[float, ...]
    std: tuple[float, ...]
    permutation: Tensor | None = None

    def __len__(self) -> int:
        return len(self.indices)

    def batches(
        self,
        batch_size: int,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        start: int = 0,
    ) -> Iterator[Batch]:
        """One pass: float32 images (B, C, H, W), (x / 255 - mean) / std, and int64 labels; the last batch may be short.

        In the order of the indices, or shuffled by the generator, which is drawn from once, in this call.
        `start` leaves out the first batches of the pass, without touching their pixels: where a run resumes.
        Batches are views of larger pieces: a batch that is kept keeps its piece, and a change to it is seen
        in no other batch.
        """
        check_count("batch_size", batch_size)
        check_at_least_zero("start", start)
        order = torch.arange(len(self)) if generator is None else torch.randperm(len(self), generator=generator)
        device = self.images.device if device is None else torch.device(device)
        return self._batches(order[start * batch_size :], batch_size, device)

    def indexed(
        self, batch_size: int, generator: torch.Generator | None = None, device: torch.device | str | None = None
    ) -> "IndexedBatches":
        """The batches that `batches` would yield, each made only when it is asked for."""
        return IndexedBatches(self, batch_size, generator, device)

    def _batches(self, order: Tensor, batch_size: int, device: torch.device) -> Iterator[Batch]:
        shape = self.images.shape[1:]
        pixels = self.images.flatten(2)
        permutation = None if self.permutation is None else self.permutation.to(device)
        # (x / 255 - mean) / std in two operations; with mean 0 and std 1 it is exactly x / 255.
        scale = 255 * _per_channel(self.std, device)
        shift = _per_channel(self.mean, device) / _per_channel(self.std, device)
        batches_a_chunk = max(1, CHUNK_VALUES // (shape.numel() * batch_size))
        for positions in torch.split(order, batches_a_chunk * batch_size) if len(order) else ():
            chosen = pixels.index_select(0, self.indices[positions]).to(device)
            values = chosen.float().div_(scale).sub_(shift)
            if permutation is not None:
                # Torch selects columns of a matrix of floats several times as fast as of bytes or of three dimensions.
                values = values.flatten(0, 1).index_select(1, permutation)
            images, labels = values.view(-1, *shape), self.labels[positions].to(device)
            yield from zip(torch.split(images, batch_size), torch.split(labels, batch_size), strict=True)


class IndexedBatches(Sequence[Batch]):
    """One pass over a part as a sequence; see `Part.indexed`."""

    def __init__(
        self, part: Part, batch_size: int, generator: torch.Generator | None, device: torch.device | str | None
    ) -> None:
        check_count("batch_size", batch_size)
        self._part, self._batch_size = part, batch_size
        self._order = torch.arange(len(part)) if generator is None else torch.randperm(len(part), generator=generator)
        self._device = part.images.device if device is None else torch.device(device)

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
        return next(self._part._batches(positions, self._batch_size, self._device))


def _per_channel(values: tuple[float, ...], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device=device)[:, None]
