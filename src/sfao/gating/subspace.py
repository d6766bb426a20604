"""The input space of a layer: the axes along which past inputs lie, and how much each of them matters.

The gradient of a Linear layer's [W | b] is a sum of outer products with its inputs [x; 1], a convolution's with the
patches of its inputs. An update that is orthogonal to past inputs leaves what the layer makes of them as it is, however
many such updates there are.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from sfao.gating._layout import Layout, reorder_columns
from sfao.gating._state_checks import check_real, check_tensor, check_whole
from sfao.gating.input_moments import PROBES, InputMoments

#: The tensors of a space, all but one, with the dtypes in which they are held; and those in which they may be saved.
SAVED_DTYPES = {"axes": torch.float32, "moments": torch.float64, "probes": torch.float32, "answers": torch.float32}
FLOATING = (torch.float32, torch.float64)


class Subspace:
    """The leading axes of the inputs that a layer has seen, with their second moments, summed over tasks.

    A few synthetic inputs with those moments, the probes, and what the layer answered to them after the last task, are
    kept to tell how far its outputs have moved since.
    """

    def __init__(self, layout: Layout, rows: int | None = None) -> None:
        self.layout = layout
        #: The rows of the layer, of which `layout` has some where others hold the rest.
        self.rows = layout.rows if rows is None else rows
        self.tasks = 0
        #: One axis per row, orthonormal.
        self.axes = torch.zeros(0, layout.width)
        self.moments = torch.zeros(0, dtype=torch.float64)
        #: The second moment of an input, on average over all of them.
        self.mean_moment = 0.0
        self.probes = torch.zeros(PROBES, layout.width)
        self.answers = torch.zeros(PROBES, layout.rows)
        #: The rows of the weight, outputs of the layer, that past tasks depend on: the others are free.
        self.used_rows = torch.zeros(layout.rows, dtype=torch.bool)
        self.is_used_whole = False
        #: The order of the columns of each parameter: so many channels last, 0 for first.
        self.channels_last = [0] * len(layout.columns)

    @property
    def is_empty(self) -> bool:
        return not len(self.axes)

    @property
    def importances(self) -> Tensor:
        """The second moment of each axis, in units of the mean over all inputs."""
        return self.moments / self.mean_moment

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self._tensors()) if self.tasks else 0

    def _tensors(self) -> list[Tensor]:
        return [self.axes, self.moments, self.probes, self.answers, self.used_rows]

    def store(
        self, inputs: InputMoments, limit: int, weights: Sequence[Tensor | None], used_rows: Tensor | None = None
    ) -> None:
        """Add the inputs of a task to those of the tasks before; keep at most `limit` axes.

        `weights` are the layer's parameters, as matrices, after the task; it used all outputs unless told.
        """
        self.arrange([0] * len(self.channels_last))
        moments, axes = inputs.find_axes(self.axes * self.moments.sqrt()[:, None])
        device = self.axes.device
        self.mean_moment = float(moments.sum()) / self.layout.width
        self.moments = moments[:limit].double().to(device)
        self.axes = axes[:limit].float().contiguous().to(device)
        self.tasks += 1
        if inputs.probes is not None:
            self.probes = self.probes + inputs.probes.to(device)
        self._use_rows(used_rows)
        self.answers = self.answer(weights)

    def _use_rows(self, used_rows: Tensor | None) -> None:
        everything = torch.ones(self.layout.rows, dtype=torch.bool, device=self.axes.device)
        self.used_rows = everything if used_rows is None else self.used_rows | used_rows.to(everything.device)
        self.is_used_whole = bool(self.used_rows.all())

    def set_axes(self, axes: Tensor) -> None:
        """Remember these axes instead: orthonormal rows that all matter alike, without probes to measure a drift by."""
        if axes.ndim != 2 or axes.shape[1] != self.layout.width:
            raise ValueError(f"`axes` must be rows of {self.layout.width} entries, got shape {tuple(axes.shape)}")
        self.tasks += 1
        self.channels_last = [0] * len(self.channels_last)
        self.axes = axes.float().contiguous()
        self.moments, self.mean_moment = axes.new_ones(len(axes), dtype=torch.float64), 1.0
        self.probes = axes.new_zeros(PROBES, self.layout.width, dtype=torch.float32)
        self.answers = axes.new_zeros(PROBES, self.layout.rows, dtype=torch.float32)
        self._use_rows(None)

    @property
    def plain_axes(self) -> Tensor:
        """The axes in the order of a contiguous gradient."""
        return self._reorder(self.axes, [0] * len(self.channels_last))

    def answer(self, weights: Sequence[Tensor | None]) -> Tensor:
        """Return the outputs of the layer for the probes; 0 for those that are free."""
        parts = self.probes.split(self.layout.columns, 1)
        there = [(part, weight) for part, weight in zip(parts, weights, strict=True) if weight is not None]
        if not there:
            return torch.zeros_like(self.answers)
        answers = sum_products(there)
        return answers if self.is_used_whole else answers.mul_(self.used_rows)

    def to(self, device: torch.device) -> None:
        self.axes, self.moments, self.probes, self.answers, self.used_rows = (
            tensor.to(device) for tensor in self._tensors()
        )

    def arrange(self, channels_last: Sequence[int]) -> None:
        """Hold axes and probes in the order in which gradients lie in memory."""
        if list(channels_last) == self.channels_last:
            return
        axes, probes = (self._reorder(held, channels_last) for held in (self.axes, self.probes))
        # One statement: an interrupt must not leave one in an order and one in another.
        self.axes, self.probes, self.channels_last = axes, probes, list(channels_last)

    def grow(self, layout: Layout) -> None:
        """Be the space of a layer with more rows, which are free."""
        more = layout.rows - self.layout.rows
        self.layout, self.rows = layout, layout.rows
        self.answers = pad(self.answers, (0, more))
        self.used_rows = pad(self.used_rows, (0, more))
        self.is_used_whole = bool(self.used_rows.all())

    def _reorder(self, held: Tensor, channels_last: Sequence[int]) -> Tensor:
        if list(channels_last) == self.channels_last:
            return held
        orders = zip(held.split(self.layout.columns, 1), self.channels_last, channels_last, strict=True)
        return torch.cat([reorder_columns(part, 1, before, after) for part, before, after in orders], 1)

    # -- State -----------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return plain containers and tensors, in the order of a contiguous gradient."""
        plain = [0] * len(self.channels_last)
        return {
            "tasks": self.tasks,
            "axes": self.plain_axes.clone(),
            "moments": self.moments.clone(),
            "mean_moment": self.mean_moment,
            "probes": self._reorder(self.probes, plain).clone(),
            "answers": self.answers.clone(),
            "used_rows": self.used_rows.clone(),
            "is_used_whole": self.is_used_whole,
        }

    @staticmethod
    def from_state_dict(
        state: Mapping[str, Any],
        layout: Layout,
        device: torch.device,
        *,
        rows: int | None = None,
        width: int | None = None,
    ) -> "Subspace":
        """Return the space of a layer laid out so, with this width held; a ValueError if the saved one is of another.

        `rows` are all of the layer's, where `layout` has some of them.
        """
        space = Subspace(layout, rows)
        held = layout.width if width is None else width
        space.tasks = check_whole("spaces/tasks", state["tasks"])
        space.mean_moment = check_real("spaces/mean_moment", state["mean_moment"])
        for name, dtype in SAVED_DTYPES.items():
            setattr(space, name, check_tensor(f"spaces/{name}", state[name], FLOATING).to(dtype))
        # States from before rows were told apart: all of them.
        space.used_rows = state.get("used_rows", torch.ones(layout.rows)).bool()
        is_known = "used_rows" in state and "is_used_whole" in state
        space.is_used_whole = bool(state["is_used_whole"] if is_known else space.used_rows.all())
        count = len(space.moments)
        found = [tuple(tensor.shape) for tensor in space._tensors()]
        expected = [(count, held), (count,), (PROBES, held), (PROBES, layout.rows), (layout.rows,)]
        if found != expected:
            raise ValueError(f"an input space of shapes {found} where {expected} were expected")
        if count and (space.mean_moment == 0 or not space.tasks or bool((space.moments < 0).any())):
            raise ValueError("'spaces/moments' must be of tasks, at least 0, with a mean above 0, but are not")
        if rows is None and space.is_used_whole != bool(space.used_rows.all()):
            raise ValueError("'spaces/is_used_whole' must agree with 'spaces/used_rows', but does not")
        space.to(device)
        return space


def sum_products(pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the sum of A B' over pairs (A, B) of matrices, of which there is one at least."""
    (first, second), *others = pairs
    total = first @ second.T
    for first, second in others:
        total.addmm_(first, second.T)
    return total


def count_bytes(layout: Layout, axes: int) -> int:
    """Return the bytes of a space with so many axes, or as many as the layer has inputs."""
    held = min(axes, layout.width)
    return held * (4 * layout.width + 8) + 4 * PROBES * (layout.width + layout.rows) + layout.rows
