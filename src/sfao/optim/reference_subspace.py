"""The reference twin of the subspace memory: the equations of docs/method.md, in float64, one layer at a time.

Nothing of the fast path is used but where chance comes in (the signs of the probes) and the numbers that the equations
leave open: between which softnesses to look, and what counts as nothing.
"""

from math import exp, pow, sqrt

import torch
from torch import Tensor

from sfao.gating.softness import HARDEST, NOTHING, SOFTEST
from sfao.optim._soft_parts import SMALL_SHARE, SMALLEST_COMPARED, SMALLEST_LENGTH

BISECTIONS = 60


class ReferenceSpace:
    """The space of one layer's matrix [W | b]: rows are outputs, columns are inputs, the last of them always 1."""

    def __init__(self, rows: int, width: int) -> None:
        self.rows, self.width = rows, width
        self.tasks = 0
        #: The part of the sum of second moments A that is kept, as rows v_j with a_j; and the mean of all a_j.
        self.axes = torch.zeros(0, width, dtype=torch.float64)
        self.moments = torch.zeros(0, dtype=torch.float64)
        self.mean_moment = 0.0
        self.used_rows = torch.zeros(rows, dtype=torch.bool)
        self.probes = torch.zeros(0, width, dtype=torch.float64)
        self.answers = torch.zeros(0, rows, dtype=torch.float64)
        self.path, self.path_before = 0.0, 0.0
        self.size: float | None = None

    def add_moment(self, inputs: Tensor, examples: int) -> Tensor:
        """Return A with the mean over examples of [x; 1] [x; 1]' added, whose rows `inputs` are."""
        return self.axes.T @ (self.moments[:, None] * self.axes) + inputs.T @ inputs / examples

    def hold(self, axes: Tensor, moments: Tensor, mean_moment: float) -> None:
        """Remember these axes of A from now on."""
        self.axes, self.moments, self.mean_moment = axes.double(), moments.double(), mean_moment

    def end_task(self, weight: Tensor, probes: Tensor, used_rows: Tensor) -> None:
        """End a task that used these rows, with this matrix [W | b]."""
        self.tasks += 1
        self.used_rows = self.used_rows | used_rows
        self.probes = probes.double()
        self.answers = self.answer(weight)
        self.path_before, self.path, self.size = self.path, 0.0, None

    def answer(self, weight: Tensor) -> Tensor:
        """Return the outputs that count for the probes."""
        answers: Tensor = self.probes @ weight.double().T * self.used_rows
        return answers

    def measure_drift(self, weight: Tensor) -> float:
        """Return how far the outputs for the probes have moved, relative to what they were."""
        return float((self.answer(weight) - self.answers).norm()) / self.answer_size

    @property
    def answer_size(self) -> float:
        """The length of the answers; those of a layer of nearly zero count as a fresh one's."""
        fresh = SMALL_SHARE * sqrt(self.rows / 3) / sqrt(self.width) * float(self.probes.norm())
        return float(max(float(self.answers.norm()), fresh, SMALLEST_LENGTH))

    def choose_share(self, keep: float, tolerance: float, weight: Tensor) -> float:
        """Return q = keep ^ (sqrt(t) (.5 + .8 path^(1/4) + (drift / tolerance)^3))."""
        way = 0.5 + 0.8 * max(self.path, self.path_before) ** 0.25
        exponent = sqrt(self.tasks) * (way + (self.measure_drift(weight) / tolerance) ** 3)
        return pow(keep, exponent) if keep else 0.0

    def soften(self, gradient: Tensor, share: float, restore: float) -> tuple[Tensor, float]:
        """Return u, its length given back, and the share of the gradient's length that was left before."""
        g = gradient.double()
        counted = g if self._learns_used_rows(g) else g * self.used_rows[:, None]
        along = counted @ self.axes.T
        importances = self.moments / self.mean_moment
        length = float(g.norm())
        if length == 0 or share >= 1:
            return g, 1.0

        def leave(logarithm: float) -> Tensor:
            removed = importances / (exp(logarithm) + importances)
            return g - (along * removed) @ self.axes

        if share == 0:
            update = g - along @ self.axes
        else:
            low, high = HARDEST, SOFTEST
            if float(leave(low).norm()) >= share * length:
                high = low
            for _ in range(BISECTIONS):
                middle = (low + high) / 2
                enough = float(leave(middle).norm()) >= share * length
                low, high = (low, middle) if enough else (middle, high)
            update = leave(high)
        left = float(update.norm()) / length
        scale = max(1.0, min(1 / left, restore)) if left > NOTHING else 0.0
        return update * scale, left

    def _learns_used_rows(self, gradient: Tensor) -> bool:
        """Tell whether rows that past tasks used are learnt, along the axes: others are then compared with them."""
        along = gradient @ self.axes.T
        in_use = float((along * self.used_rows[:, None]).norm())
        return bool(self.used_rows.all()) or in_use > SMALLEST_COMPARED * float(along.norm())

    def begin_way(self, weight: Tensor) -> None:
        """Measure the layer at the first step of a task: paths are in units of its length then."""
        if self.size is None:
            self.size = max(float(weight.double().norm()), SMALL_SHARE * sqrt(self.rows / 3))

    def travel(self, length: float) -> None:
        """Add a step of this length to the path."""
        self.path += length / max(self.size or 0.0, SMALLEST_LENGTH)
