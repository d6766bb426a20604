"""Models of one shape as one: every parameter and buffer has a leading dimension, one entry per run."""

from collections.abc import Mapping, Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.functional import cross_entropy

Tensors = dict[str, Tensor]


class StackedModels:
    """The weights of many models, copied from them, and handed back by `hand_over`."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self._models = models
        self._plain = deepcopy(models[0])
        held = [dict(model.named_parameters()) for model in models]
        trained = [name for name, parameter in held[0].items() if parameter.requires_grad]
        #: What is trained, {name: runs x shape}, and what is not: frozen parameters and statistics.
        self.parameters = _stack(held, trained)
        for stacked in self.parameters.values():
            stacked.requires_grad_()
        self._frozen = _stack(held, [name for name in held[0] if name not in self.parameters])
        buffers = [dict(model.named_buffers()) for model in models]
        self._buffers = _stack(buffers, list(buffers[0]))
        self._call = vmap(self._call_one)

    def _call_one(self, parameters: Tensors, rest: Tensors, inputs: Tensor) -> Tensor:
        outputs: Tensor = functional_call(self._plain, {**parameters, **rest}, (inputs,))
        return outputs

    def find_names(self, number: int) -> dict[Tensor, str]:
        """Return the names of the parameters of one model."""
        return {parameter: name for name, parameter in self._models[number].named_parameters()}

    def forward(self, inputs: Tensor, *, training: bool) -> Tensor:
        """Return the outputs of every model for its own inputs, (runs x batch x outputs)."""
        self._plain.train(training)
        outputs: Tensor = self._call(self.parameters, {**self._frozen, **self._buffers}, inputs)
        return outputs

    def take_gradients(self, inputs: Tensor, targets: Tensor, outputs: slice) -> tuple[Tensor, Tensors]:
        """Return the loss of every model on its own batch, and its gradient, which may lie transposed in memory."""
        with torch.enable_grad():
            losses = measure_losses(self.forward(inputs, training=True)[..., outputs], targets)
            # No loss depends on the weights of another run, so the gradient of their sum is that of each.
            gradients = torch.autograd.grad(losses.sum(), list(self.parameters.values()))
        return losses.detach(), dict(zip(self.parameters, gradients, strict=True))

    @torch.no_grad()
    def hand_over(self) -> None:
        """Copy weights and statistics back into the models."""
        for number, model in enumerate(self._models):
            own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
            for name, stacked in {**self.parameters, **self._buffers}.items():
                own[name].copy_(stacked[number])


def measure_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy of each run, of logits (runs x batch x classes)."""
    each = cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return each.view(targets.shape).mean(1)


def _stack(held: Sequence[Mapping[str, Tensor]], names: Sequence[str]) -> Tensors:
    return {name: stack([own[name].detach() for own in held]) for name in names}


def stack(tensors: Sequence[Tensor]) -> Tensor:
    """Return the tensors with a leading dimension; matrices lie as the products in a backward pass leave gradients.

    Sums of tensors that lie alike are several times as fast.
    """
    stacked = torch.stack(list(tensors))
    return stacked.mT.contiguous().mT if stacked.ndim == 3 else stacked


def widen(values: Tensor, like: Tensor) -> Tensor:
    """Return one value per run in a shape that multiplies a stacked tensor."""
    return values.to(like.dtype).view(-1, *[1] * (like.ndim - 1))


def find_random_module(model: nn.Module) -> str | None:
    """Return the name of a module that draws random numbers in training: runs of a stack would share them."""
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            return f"{type(module).__name__} {name!r}"
    return None
