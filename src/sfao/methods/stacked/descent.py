"""A step of gradient descent of many runs at once, each with its own rate, momentum and decay."""

from collections.abc import Sequence

import torch
from torch import Tensor

from sfao.methods.method import Training
from sfao.methods.stacked.models import Tensors, widen
from sfao.optim.descent import Descent


class StackedDescent:
    """The settings of the runs, and their momentum: what :class:`sfao.optim.descent.Descent` does for each of them."""

    def __init__(self, trainings: Sequence[Training], device: torch.device) -> None:
        def gather(values: list[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float64).float().to(device)

        self.rates = gather([one.lr for one in trainings])
        self._momenta = gather([one.momentum for one in trainings])
        is_average = trainings[0].momentum_form == "ema"
        #: What a gradient adds to momentum.
        self._shares = 1 - self._momenta if is_average else torch.ones_like(self._momenta)
        #: What weight decay takes of a parameter at each step.
        self._decays = gather([one.lr * one.weight_decay for one in trainings])
        self.has_momentum = any(one.momentum for one in trainings)
        self._has_decay = any(one.weight_decay for one in trainings)
        self._buffers: Tensors = {}

    def take_over(self, optimizers: Sequence[Descent], names: Sequence[dict[Tensor, str]]) -> None:
        """Go on with the momentum that the optimizers hold, of parameters with these names."""
        for number, (optimizer, of_run) in enumerate(zip(optimizers, names, strict=True)):
            for parameter, state in optimizer.state.items():
                if (held := state.get("momentum_buffer")) is not None:
                    zeros = held.new_zeros(len(self.rates), *held.shape)
                    self._buffers.setdefault(of_run[parameter], zeros)[number] = held

    def hand_over(self, optimizers: Sequence[Descent], names: Sequence[dict[Tensor, str]]) -> None:
        """Let the optimizers of runs with momentum hold it."""
        for number, (optimizer, of_run) in enumerate(zip(optimizers, names, strict=True)):
            for parameter, name in of_run.items():
                if name in self._buffers and optimizer.param_groups[0]["momentum"]:
                    held = self._buffers[name][number].clone(memory_format=torch.contiguous_format)
                    optimizer.state[parameter]["momentum_buffer"] = held

    @torch.no_grad()
    def descend(self, parameters: Tensors, gradients: Tensors, moving: Tensor | None = None) -> Tensors:
        """Move the parameters along their gradients, of runs that are `moving`; return what they were moved along."""
        steps = self._add_momentum(gradients) if self.has_momentum else gradients
        rates = self.rates if moving is None else self.rates * moving
        decays = self._decays if moving is None else self._decays * moving
        for name, step in steps.items():
            parameter = parameters[name]
            if self._has_decay:
                parameter.mul_(widen(1 - decays, parameter))
            parameter.addcmul_(widen(rates, parameter), step, value=-1)
        return steps

    def _add_momentum(self, gradients: Tensors) -> Tensors:
        for name, gradient in gradients.items():
            added = widen(self._shares, gradient) * gradient
            held = self._buffers.get(name)
            self._buffers[name] = added if held is None else held.mul_(widen(self._momenta, gradient)).add_(added)
        return {name: self._buffers[name] for name in gradients}
