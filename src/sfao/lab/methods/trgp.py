"""Trust region gradient projection (Lin et al. 2022): GPM that reuses what it has frozen, through small matrices.

As in `gpm`, no step moves along the axes M of past inputs. Before a task is learnt, the past tasks whose inputs hold
most of its first gradient are chosen, layer by layer: the trust region. The weights along their axes B stay as they
are, but for this task they are scaled, W + W B (Q - 1) B', and Q is learnt with the rest. The scales of a task are used
whenever that task is answered, so it must be told which one it is.

The authors' code gathers the inputs of a task with unscaled weights; here they are those that the layers really see,
which are what must not change. Where theirs trusts one past task in the third task, ours trusts two, as in the others.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.optim import Optimizer

from sfao.lab.methods.gpm import GPMOptions, overlap, per_layer
from sfao.lab.methods.input_moments import collect_inputs, find_input_layers
from sfao.lab.methods.layer_rows import read_gradient_rows, read_rows, write_gradient_rows, write_rows
from sfao.lab.methods.method import Method, MethodOptions, Training
from sfao.lab.methods.search_range import Range, SearchSpace
from sfao.lab.methods.trust_region import (
    Region,
    choose_axes,
    choose_trusted,
    differentiate_scale,
    measure_shares,
    scale_rows,
)
from sfao.lab.streams.seeding import make_generator
from sfao.lab.streams.stream import Task

#: {layer: {past task: the scale of its axes}}
Scales = dict[str, dict[int, Tensor]]


class TRGPOptions(GPMOptions):
    #: The least share of a task's first gradient in the space of a past one to trust it; 0.5 in the paper, 0.2 in the
    #: authors' Permuted MNIST.
    trust: float = Field(0.5, ge=0, le=1, allow_inf_nan=False)
    #: Past tasks that a layer trusts at most; 2 in the paper.
    related: PositiveInt = 2


class TRGP(Method):
    """Bias, last layer and other parameters are as in `gpm`: the last layer is free where tasks share no outputs."""

    name = "trgp"
    Options = TRGPOptions
    options: TRGPOptions
    needs_task = True
    search_space: ClassVar[SearchSpace] = {"threshold": Range(0.8, 0.999), "trust": Range(0.1, 0.9)}

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        super().__init__(model, training, options)
        self.layers = find_input_layers(model)
        self.thresholds = per_layer(self.options.threshold, list(self.layers))
        #: The axes of all past tasks, as columns, by layer.
        self.bases: dict[str, Tensor] = {}
        #: For each past task, which of them are its own.
        self.own_axes: list[dict[str, Tensor]] = []
        #: For each task that has begun, the scales that it is answered with.
        self.scales: list[Scales] = []
        self.past_outputs: list[slice] = []
        self._copies: dict[tuple[str, int], Tensor] = {}
        held = {parameter for layer in self.layers.values() for parameter in layer.parameters()}
        #: The parameters that are frozen after the first task.
        self.others = [parameter for parameter in model.parameters() if parameter not in held]
        self.scale_descent = self._make_scale_descent()

    # -- What the loop calls -----------------------------------------------------------------------------

    def begin_task(self, number: int, task: Task) -> None:
        self._copies.clear()
        self.scales.append(self._choose_scales(number, task) if number else {})
        self.scale_descent = self._make_scale_descent()

    def step(self, inputs: Tensor, targets: Tensor, outputs: slice) -> Tensor:
        self.optimizer.zero_grad()
        number = len(self.scales) - 1
        with self.model_for_task(number):
            loss = self.loss(inputs, targets, outputs)
            loss.backward()
        free = self._find_free_layer(outputs)
        for name, basis in self.bases.items():
            gradient = read_gradient_rows(self.layers[name])
            if gradient is None or name == free:
                continue
            along = gradient @ basis
            rows = read_rows(self.layers[name])
            for past, scale in self.scales[number].get(name, {}).items():
                own = self.own_axes[past][name]
                scale.grad = differentiate_scale(rows, self._find_axes(name, past), along[:, own])
            # What the scales would change of this gradient lies along the basis, and is left out with the rest.
            write_gradient_rows(self.layers[name], torch.addmm(gradient, along, basis.T, alpha=-1))
        if self.past_outputs:
            for parameter in self.others:
                parameter.grad = None
        self.optimizer.step()
        if self.scale_descent is not None:
            self.scale_descent.step()
        return loss.detach()

    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        super().end_task(number, task, generator)
        self.scale_descent = None
        with self.model_for_task(number):
            found = collect_inputs(self.model, self.layers, self.batches(task, generator), self.options.examples)
        own = {}
        for name, moments in found.items():
            values, axes = moments.find_axes()
            basis = self.bases.get(name, axes.new_empty(axes.shape[1], 0))
            threshold = min(1.0, self.thresholds[name] + number * self.options.threshold_increase)
            grown, needed = choose_axes(basis.to(axes), axes.T * values.sqrt(), threshold)
            self.bases[name], own[name] = grown.float(), needed.to(self.device)
        self.own_axes.append(own)
        self.past_outputs.append(task.outputs)

    @contextmanager
    def model_for_task(self, number: int) -> Iterator[nn.Module]:
        scales = self.scales[number] if number < len(self.scales) else {}
        before = {name: read_rows(self.layers[name]) for name in scales}
        try:
            for name, rows in before.items():
                regions = [Region(self._find_axes(name, past), scale) for past, scale in scales[name].items()]
                write_rows(self.layers[name], scale_rows(rows, regions))
            yield self.model
        finally:
            for name, rows in before.items():
                write_rows(self.layers[name], rows)

    def set_lr(self, rate: float) -> None:
        super().set_lr(rate)
        if self.scale_descent is not None:
            self.scale_descent.param_groups[0]["lr"] = rate

    # -- The trust region ------------------------------------------------------------------------------------

    def _choose_scales(self, number: int, task: Task) -> Scales:
        """Return unit scales for the past tasks that each layer trusts, by the gradient of examples of a new one."""
        generator = make_generator(self.training.seed, f"trgp: trust of task {number}")
        inputs, targets = next(self.batches(task, generator, self.options.examples))
        was_training = self.model.training
        self.model.eval()
        self.optimizer.zero_grad()
        self.loss(inputs, targets, task.outputs).backward()
        self.model.train(was_training)
        free, found = self._find_free_layer(task.outputs), {}
        for name in self.bases:
            gradient = read_gradient_rows(self.layers[name])
            if gradient is None or name == free:
                continue
            tasks = [past for past, own in enumerate(self.own_axes) if len(own.get(name, ()))]
            shares = measure_shares(gradient, [self._find_axes(name, past) for past in tasks])
            trusted = [tasks[n] for n in choose_trusted(shares, self.options.trust, self.options.related)]
            if trusted:
                units = [torch.eye(len(self.own_axes[past][name]), device=self.device) for past in trusted]
                found[name] = dict(zip(trusted, units, strict=True))
        self.optimizer.zero_grad()
        return found

    def _find_axes(self, name: str, past: int) -> Tensor:
        """Return the axes of a past task, as columns. They never change: every step would make the same copy."""
        if (name, past) not in self._copies:
            self._copies[name, past] = self.bases[name][:, self.own_axes[past][name]]
        return self._copies[name, past]

    def _find_free_layer(self, outputs: slice) -> str | None:
        """Return the name of the last layer where no past task has used these outputs."""
        return None if any(overlap(outputs, past) for past in self.past_outputs) else list(self.layers)[-1]

    def _make_scale_descent(self) -> Optimizer | None:
        """Return what learns the scales of the task at hand, without weight decay; None where there are none."""
        learnt = [scale for scales in (self.scales or [{}])[-1].values() for scale in scales.values()]
        return self.make_optimizer(learnt, weight_decay=0.0) if learnt else None

    # -- What a record contains, and the state -----------------------------------------------------------------

    @property
    def memory_bytes(self) -> int:
        """Bytes of the axes, of their numbers, and of the scales."""
        numbers = [numbers for own in self.own_axes for numbers in own.values()]
        scales = [scale for each in self.scales for layer in each.values() for scale in layer.values()]
        return sum(tensor.nbytes for tensor in (*self.bases.values(), *numbers, *scales))

    def concerns(self) -> list[str]:
        if len(self.past_outputs) < 2:
            return [f"{self.name}: no step was ever projected; every update equalled SGD's"]
        if not any(self.scales):
            return [f"{self.name}: no layer ever trusted a past task; every update was GPM's"]
        return []

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "bases": dict(self.bases),
            "own_axes": [dict(own) for own in self.own_axes],
            "scales": [{name: dict(layer) for name, layer in each.items()} for each in self.scales],
            "scale_descent": None if self.scale_descent is None else self.scale_descent.state_dict(),
            "past_outputs": [[outputs.start, outputs.stop] for outputs in self.past_outputs],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._copies.clear()
        self.bases = {name: basis.to(self.device) for name, basis in state["bases"].items()}
        self.own_axes = [{name: own.to(self.device) for name, own in each.items()} for each in state["own_axes"]]
        self.scales = [
            {name: {past: scale.to(self.device) for past, scale in layer.items()} for name, layer in each.items()}
            for each in state["scales"]
        ]
        self.past_outputs = [slice(start, stop) for start, stop in state["past_outputs"]]
        self.scale_descent = None
        if state["scale_descent"] is not None:
            self.scale_descent = self._make_scale_descent()
            if self.scale_descent is not None:
                self.scale_descent.load_state_dict(state["scale_descent"])
