"""Trust region gradient projection (Lin et al. 2022): GPM that reuses what it has frozen, through small matrices.

As in `gpm`, no step moves along the axes M of past inputs. Before a task is learned, the past tasks whose inputs hold
most of its first gradient are chosen, layer by layer: the trust region. The weights along their axes B stay as they
are, but for this task they are scaled, W + W B (Q - 1) B', and Q is learned with the rest. The scales of a task are
used whenever that task is evaluated, so the method must be told the task.

The authors' code gathers the inputs of a task with unscaled weights; here they are those that the layers really see,
which are what must not change. Where theirs trusts one past task in the third task, ours trusts two, as in the others.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim import Optimizer

from sfao.batches import eval_mode
from sfao.lab.methods.input_subspace import SubspaceMethod, SubspaceOptions, read_gradient, read_rows, write_rows
from sfao.lab.methods.method import MethodOptions, Training
from sfao.lab.methods.search_range import Range, SearchSpace
from sfao.lab.methods.trust_region import choose_axes, choose_trusted, scale_rows
from sfao.lab.streams.seeding import make_generator
from sfao.lab.streams.stream import Task

#: {layer: {past task: the scale of its axes}}
Scales = dict[str, dict[int, Tensor]]


class TRGPOptions(SubspaceOptions):
    trust: float = Field(
        0.5,
        ge=0,
        le=1,
        description="The least share of a task's first gradient in the space of a past one to trust it; 0.5 in the "
        "paper, 0.2 in the authors' Permuted MNIST.",
    )
    related: int = Field(2, ge=1, description="Past tasks that a layer trusts at most; 2 in the paper.")


class TRGP(SubspaceMethod):
    """Bias, last layer and other parameters are as in `gpm`. Scales have an optimizer of their own, without decay."""

    name = "trgp"
    Options = TRGPOptions
    options: TRGPOptions
    needs_task = True
    search_space: ClassVar[SearchSpace] = {"threshold": Range(0.8, 0.999), "trust": Range(0.1, 0.9)}
    saved: ClassVar[tuple[str, ...]] = (*SubspaceMethod.saved, "own_axes", "scales")

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        super().__init__(model, training, options)
        #: For each past task, the numbers of its axes among those of the basis, by layer.
        self.own_axes: list[dict[str, Tensor]] = []
        #: For each task that has begun, the scales that it is evaluated with.
        self.scales: list[Scales] = []
        self.scale_optimizer: Optimizer | None = None

    def begin_task(self, number: int, task: Task) -> None:
        self.scales.append(self._choose_scales(number, task) if number else {})
        self.scale_optimizer = self._make_scale_optimizer()

    def step(self, inputs: Tensor, targets: Tensor, outputs: slice) -> Tensor:
        self.optimizer.zero_grad()
        with self.model_for_task(len(self.scales) - 1):
            loss = self.loss(inputs, targets, outputs)
            loss.backward()
        self.update(outputs)
        if self.scale_optimizer is not None:
            self.scale_optimizer.step()
        return loss.detach()

    def project(self, name: str, rows: Tensor) -> Tensor:
        """Return the gradient off the basis, and leave those of the scales in their `.grad`.

        What the scales change of the gradient lies along the basis, and is left out with the rest.
        """
        along, weights = rows @ self.bases[name], read_rows(self.layers[name])
        for past, scale in self.scales[-1].get(name, {}).items():
            # That of the scaled weights along the axes is G B; that of Q is (W B)' G B.
            scale.grad = (weights @ self._find_axes(name, past)).T @ along[:, self.own_axes[past][name]]
        return torch.addmm(rows, along, self.bases[name].T, alpha=-1)

    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        self.own_axes.append({})
        super().end_task(number, task, generator)

    def store(self, name: str, basis: Tensor, inputs: Tensor, threshold: float) -> None:
        grown, needed = choose_axes(basis, inputs, threshold)
        self.bases[name], self.own_axes[-1][name] = grown.float(), needed.to(self.device)

    @contextmanager
    def model_for_task(self, number: int) -> Iterator[nn.Module]:
        scales = self.scales[number] if number < len(self.scales) else {}
        before = {name: read_rows(self.layers[name]) for name in scales}
        try:
            for name, rows in before.items():
                regions = ((self._find_axes(name, past), scale) for past, scale in scales[name].items())
                write_rows(self.layers[name], scale_rows(rows, regions))
            yield self.model
        finally:
            for name, rows in before.items():
                write_rows(self.layers[name], rows)

    def set_lr(self, lr: float) -> None:
        super().set_lr(lr)
        if self.scale_optimizer is not None:
            self.scale_optimizer.param_groups[0]["lr"] = lr

    # -- The trust region ------------------------------------------------------------------------------------

    def _choose_scales(self, number: int, task: Task) -> Scales:
        """Return unit scales for the past tasks that each layer trusts, by the gradient of examples of a new one."""
        generator = make_generator(self.training.seed, f"trgp: trust of task {number}")
        inputs, targets = next(self.batches(task, generator, self.options.examples))
        self.optimizer.zero_grad()
        with eval_mode(self.model):
            self.loss(inputs, targets, task.outputs).backward()
        free, found = self.find_free_layer(task.outputs), {}
        for name in self.bases:
            gradient = read_gradient(self.layers[name])
            if gradient is None or name == free:
                continue
            spaces = {past: self._find_axes(name, past) for past, own in enumerate(self.own_axes) if name in own}
            if trusted := choose_trusted(gradient, spaces, self.options.trust, self.options.related):
                found[name] = {past: torch.eye(len(self.own_axes[past][name]), device=self.device) for past in trusted}
        self.optimizer.zero_grad()
        return found

    def _find_axes(self, name: str, past: int) -> Tensor:
        """Return the axes of a past task, as columns."""
        return self.bases[name][:, self.own_axes[past][name]]

    def _make_scale_optimizer(self) -> Optimizer | None:
        """Return what learns the scales of the current task; None where there are none."""
        learned = [scale for scales in (self.scales or [{}])[-1].values() for scale in scales.values()]
        return self.make_optimizer(learned, weight_decay=0.0) if learned else None

    # -- The record, and the state -----------------------------------------------------------------------------

    @property
    def memory_bytes(self) -> int:
        """Bytes of the axes, of their numbers, and of the scales."""
        numbers = [numbers for own in self.own_axes for numbers in own.values()]
        scales = [scale for each in self.scales for layer in each.values() for scale in layer.values()]
        return super().memory_bytes + sum(tensor.nbytes for tensor in (*numbers, *scales))

    def concerns(self) -> list[str]:
        return [] if any(self.scales) else [f"{self.name}: no layer ever trusted a past task; every update was GPM's"]

    def state_dict(self) -> dict[str, Any]:
        optimizer = None if self.scale_optimizer is None else self.scale_optimizer.state_dict()
        return {**super().state_dict(), "scale_optimizer": optimizer}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.scale_optimizer = self._make_scale_optimizer()
        if self.scale_optimizer is not None:
            self.scale_optimizer.load_state_dict(state["scale_optimizer"])
