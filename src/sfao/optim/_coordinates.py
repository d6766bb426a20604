"""The coordinates of all gradients along their axes, held together so that one launch serves many layers."""

from collections.abc import Sequence

import torch
from torch import Tensor


class Coordinates:
    """Matrices of coordinates, one for each part of a layer with axes; those with as many rows lie side by side.

    Args:
        rows: of each part.
        places: of each part, the number of its layer and the columns of its axes in a table of (layers x axes).
        shape: of that table.
        dtypes: of each part's coordinates.
    """

    def __init__(
        self,
        rows: Sequence[int],
        places: Sequence[tuple[int, slice]],
        shape: tuple[int, int],
        dtypes: Sequence[torch.dtype],
        device: torch.device,
    ) -> None:
        widths = [columns.stop - columns.start for _, columns in places]
        kinds = list(zip(rows, dtypes, strict=True))
        members = {kind: [part for part, other in enumerate(kinds) if other == kind] for kind in dict.fromkeys(kinds)}
        self._blocks: list[Tensor] = []
        #: By block, the entries of the table that belong to the columns of its parts.
        self._entries: list[Tensor] = []
        #: The coordinates of each part: a view.
        self.of_part: list[Tensor] = [torch.empty(0)] * len(rows)
        sources = torch.full((shape[0] * shape[1],), -1, dtype=torch.int64)
        start = 0
        for (count, dtype), numbers in members.items():
            width = max(widths[part] for part in numbers)
            block = torch.zeros(len(numbers), count, width, dtype=dtype, device=device)
            entries = torch.zeros(len(numbers), width, dtype=torch.int64)
            for place, part in enumerate(numbers):
                self.of_part[part] = block[place, :, : widths[part]]
                layer, columns = places[part]
                entries[place, : widths[part]] = layer * shape[1] + torch.arange(columns.start, columns.stop)
                sources[entries[place, : widths[part]]] = start + place * width + torch.arange(widths[part])
            self._blocks.append(block)
            self._entries.append(entries.to(device))
            start += len(numbers) * width
        # Entries of no part are read from one more that is always 0.
        self._sources = torch.where(sources < 0, start, sources).view(shape).to(device)

    def measure_energies(self, dtype: torch.dtype) -> Tensor:
        """Return the squared lengths along each axis, as a table of (layers x axes); 0 where there is none."""
        lengths = [torch.linalg.vector_norm(block, dim=1, dtype=dtype).flatten() for block in self._blocks]
        return torch.cat([*lengths, lengths[0].new_zeros(1)])[self._sources].square_()

    def scale(self, table: Tensor) -> None:
        """Multiply the coordinates along each axis by its entry of the table."""
        for block, entries in zip(self._blocks, self._entries, strict=True):
            block.mul_(table.flatten()[entries].to(block.dtype)[:, None])
