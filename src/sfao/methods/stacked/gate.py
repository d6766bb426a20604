"""The gate of many runs at once, where it remembers input spaces."""

from collections.abc import Sequence
from math import isfinite, sqrt
from typing import cast

import torch
from torch import Tensor

from sfao.gating.decision import ACCEPTED, COUNTED, DISCARDED, PROJECTED, ZERO
from sfao.gating.softness import ALL, NOTHING
from sfao.methods.method import Method
from sfao.methods.stacked.method import StackedMethod, StackReport
from sfao.methods.stacked.models import Tensors, widen
from sfao.methods.stacked.softening import StackedSoftening, measure_squares
from sfao.optim.layers import Layer
from sfao.optim.sfao import SFAO


class StackedGate(StackedMethod):
    """Descent through the gates of many runs: each holds its own input spaces, and stores what it remembers itself.

    A gradient that is not finite ends its own run, which keeps the weights it had; the others go on.
    """

    def __init__(self, methods: Sequence[Method]) -> None:
        super().__init__(methods)
        device = methods[0].device
        self._gates = [cast(SFAO, method.optimizer).gate for method in methods]
        self._layers = [self.find_layers(method) for method in methods]
        self._dtype = torch.float32 if device.type == "mps" else torch.float64
        self._names = [[self.names[0][parameter] for parameter in layer.parameters] for layer in self._layers[0]]
        #: The numbers of the layers that are softened.
        self._softened = [number for number, layer in enumerate(self._layers[0]) if layer.remembers_inputs]
        # On the device: a list would be sent there at every step.
        self._places = torch.tensor(self._softened, dtype=torch.int64, device=device)
        self.softening = self._make_softening()
        counts = [[[layer.counts[name] for name in COUNTED] for layer in own] for own in self._layers]
        self._counts = torch.tensor(counts, dtype=torch.int64, device=device)
        self._codes = torch.arange(len(COUNTED), device=device)
        #: By run: whether all gradients were finite so far, the steps made, and the squared lengths where one was not.
        self._is_sound = torch.ones(len(methods), dtype=torch.bool, device=device)
        self._steps = torch.zeros(len(methods), dtype=torch.int64, device=device)
        self._broken = torch.zeros(len(methods), len(self._names), dtype=self._dtype, device=device)

    def find_layers(self, method: Method) -> list[Layer]:
        """Return the layers of a run that are trained now."""
        return cast(SFAO, method.optimizer).gate.layers

    def _make_softening(self) -> StackedSoftening | None:
        if not self._softened:
            return None
        remembering = [[own[number] for number in self._softened] for own in self._layers]
        return StackedSoftening(remembering, self.names, self._dtype)

    def descend(self, gradients: Tensors) -> None:
        self._gates[0]._exactly(lambda: self._descend(gradients))

    def _descend(self, gradients: Tensors) -> None:
        parameters, softening = self.models.parameters, self.softening
        # Matrices may be transposed; what has more dimensions must be seen as a matrix.
        gradients = {name: step if step.ndim <= 3 else step.contiguous() for name, step in gradients.items()}
        squares = measure_squares(gradients, self._names, self._dtype)
        self._note_sound(squares)
        self._hold_back(gradients)
        squares = torch.where(self._is_sound[:, None], squares, 0.0)
        codes = torch.where(squares > 0, ACCEPTED, ZERO)
        if softening is not None:
            softening.apply(gradients, squares[:, self._places], parameters)
            codes[:, self._places] = merge_codes(codes[:, self._places], softening.shares)
        self._counts += (codes[:, :, None] == self._codes) & self._is_sound[:, None, None]
        steps = self.descent.descend(parameters, gradients, self._is_sound)
        if softening is not None:
            lengths = softening.measure_squares(steps).sqrt_() if self.descent.has_momentum else softening.lengths
            softening.travel(lengths * (self.descent.rates * self._is_sound).to(lengths.dtype)[:, None])

    def _note_sound(self, squares: Tensor) -> None:
        is_finite = squares.isfinite().all(1)
        self._broken = torch.where((self._is_sound & ~is_finite)[:, None], squares, self._broken)
        self._is_sound = self._is_sound & is_finite
        self._steps += self._is_sound

    def _hold_back(self, gradients: Tensors) -> None:
        """Make the gradients of runs that have come to their end zero."""
        if self._is_sound.device.type == "cpu" and bool(self._is_sound.all()):
            return  # to ask another device would be to wait for it
        for name, gradient in gradients.items():
            gradients[name] = torch.where(widen(self._is_sound, gradient).bool(), gradient, 0.0)

    def report(self, losses: Tensor) -> list[StackReport]:
        names = [layer.name for layer in self._layers[0]]
        counts, looks = self._counts.tolist(), self._read_looks()
        made, sound, broken = self._steps.tolist(), self._is_sound.tolist(), self._broken.tolist()
        return [
            StackReport(
                loss,
                {name: dict(zip(COUNTED, own, strict=True)) for name, own in zip(names, counts[run], strict=True)},
                looks[run],
                "" if sound[run] else explain_broken(names, broken[run]),
                made[run],
            )
            for run, loss in enumerate(losses.tolist())
        ]

    def _read_looks(self) -> list[dict[str, dict[str, float]]]:
        if self.softening is None:
            return [{} for _ in self.methods]
        names = [self._layers[0][number].name for number in self._softened]
        return [
            {name: {"kept": share, "drift": drift} for name, share, drift in zip(names, shares, drifts, strict=True)}
            for shares, drifts in zip(self.softening.shares.tolist(), self.softening.drifts.tolist(), strict=True)
        ]

    def hand_over(self) -> None:
        super().hand_over()
        if self.softening is not None:
            self.softening.hand_over()
        for own, counts in zip(self._layers, self._counts.tolist(), strict=True):
            for layer, of_layer in zip(own, counts, strict=True):
                layer.counts.update(zip(COUNTED, of_layer, strict=True))


def merge_codes(codes: Tensor, shares: Tensor) -> Tensor:
    """Return the decisions on gradients of which softening left these shares."""
    softened = torch.where((codes == ACCEPTED) & (shares <= ALL), PROJECTED, codes)
    return torch.where(shares <= NOTHING, DISCARDED, softened)


def explain_broken(names: Sequence[str], squares: Sequence[float]) -> str:
    """Return the error of a run with gradients of these squared lengths, one of which at least is not finite."""
    name, square = next((name, square) for name, square in zip(names, squares, strict=True) if not isfinite(square))
    return f"the gradient of layer {name!r} must be finite, got {sqrt(square)}"
