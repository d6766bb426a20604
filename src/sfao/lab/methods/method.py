"""The interface of the methods: ways to learn a sequence of tasks, one batch at a time."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from sfao.batches import map_tensors
from sfao.lab.methods.optimizers import OPTIMIZERS, check_momentum, complete_momentum, make_optimizer
from sfao.lab.methods.search_range import SearchSpace
from sfao.lab.streams.labelled_images import Batch
from sfao.lab.streams.stream import Task


class MethodOptions(BaseModel):
    """The options of a method: names, defaults, rules and meanings, checked when a run is configured."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


@dataclass(frozen=True)
class Training:
    """The settings of training that all methods share."""

    lr: float
    momentum: float
    momentum_form: str
    weight_decay: float
    batch_size: int
    seed: int
    optimizer: str = OPTIMIZERS[0]

    def __post_init__(self) -> None:
        object.__setattr__(self, "momentum", complete_momentum(self.optimizer, self.momentum))
        check_momentum(self.optimizer, self.momentum, self.momentum_form)

    @property
    def is_descent(self) -> bool:
        """True if the optimizer is SGD, with or without momentum."""
        return self.optimizer in ("sgd", "momentum")


class TaskView(nn.Module):
    """The outputs of a model for one task; a module, so that eval mode reaches the model."""

    def __init__(self, model: nn.Module, outputs: slice) -> None:
        super().__init__()
        self.model = model
        self.outputs = outputs

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.model(inputs)
        return logits[:, self.outputs]


def first_examples(batches: Iterable[Batch], limit: int) -> Iterator[Batch]:
    """Yield the batches up to `limit` examples."""
    for inputs, targets in batches:
        yield inputs[:limit], targets[:limit]
        limit -= len(inputs)
        if limit <= 0:
            return


class Method:
    """Plain training; methods override what they do differently.

    A method with options of its own names their class twice: as `Options`, and as the type of `options`.

    The loop calls `begin_task`, then `step` for every batch, then `end_task`. Everything a method keeps from one
    call to the next is in `state_dict`, in plain containers and tensors: a run that is killed anywhere must resume
    from its checkpoint bit for bit.
    """

    name: ClassVar[str]
    Options: ClassVar[type[MethodOptions]] = MethodOptions
    #: The optimizers that the method can be used with.
    optimizers: ClassVar[tuple[str, ...]] = OPTIMIZERS
    #: The options that `sfao tune` chooses where no `--search` is given; empty for a method without any to choose.
    search_space: ClassVar[SearchSpace] = {}
    #: True if every task is trained together with all tasks before it.
    trains_on_all_tasks: ClassVar[bool] = False
    #: True if examples of past tasks are stored.
    stores_data: ClassVar[bool] = False
    #: True if it evaluates each task with weights of its own, and must be told the task: for scenario `task` only.
    needs_task: ClassVar[bool] = False

    #: Attributes with all that is kept between calls beside the optimizer's state: plain containers and tensors.
    saved: ClassVar[tuple[str, ...]] = ()

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        self.check_training(training, options)
        self.model = model
        self.training = training
        self.options = options
        self.optimizer = self.make_optimizer()

    @classmethod
    def check_training(cls, training: Training, options: Any) -> None:
        """Raise a ValueError if the method, with these options, can't be trained like this."""
        if training.optimizer not in cls.optimizers:
            known = ", ".join(cls.optimizers)
            raise ValueError(f"`optimizer` must be one of {known} with {cls.name}, got {training.optimizer!r}")

    def make_optimizer(self, parameters: Iterable[Tensor] | None = None, **changes: Any) -> Optimizer:
        """Return the configured optimizer, of all parameters by default, with some settings changed."""
        names = ("optimizer", "lr", "momentum", "momentum_form", "weight_decay")
        settings = {name: getattr(self.training, name) for name in names}
        return make_optimizer(self.model.parameters() if parameters is None else parameters, **{**settings, **changes})

    # -- Called by the loop ------------------------------------------------------------------------------

    def begin_task(self, number: int, task: Task) -> None:
        """Prepare for task `number`, counted from 0."""

    def step(self, inputs: Tensor, targets: Tensor, outputs: slice) -> Tensor:
        """Make one update on one batch and return its loss, detached. Targets count from the first of `outputs`."""
        self.optimizer.zero_grad()
        loss = self.loss(inputs, targets, outputs)
        loss.backward()
        self.update(outputs)
        return loss.detach()

    def loss(self, inputs: Tensor, targets: Tensor, outputs: slice) -> Tensor:
        """Return the loss to descend on."""
        return cross_entropy(self.model(inputs)[:, outputs], targets)

    def update(self, outputs: slice) -> None:
        """Make the optimizer's step, given `.grad`; methods that change gradients do it first."""
        self.optimizer.step()

    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        """Store what later tasks need of task `number`, which has just been learned. The optimizer starts anew."""
        self.optimizer.state.clear()

    @contextmanager
    def model_for_task(self, number: int) -> Iterator[nn.Module]:
        """Give the model the weights that task `number` is evaluated with; they differ where a method `needs_task`."""
        yield self.model

    @property
    def can_checkpoint(self) -> bool:
        """True if saving the state now would not change the run."""
        return True

    def halve_lr(self) -> str:
        """Train more carefully until `reset_lr`, after a rollback; return the change in words."""
        old = self.optimizer.param_groups[0]["lr"]
        self.set_lr(old / 2)
        return f"lr {old:g} -> {old / 2:g}"

    def reset_lr(self) -> None:
        """Use the configured learning rate again: the task is over."""
        self.set_lr(self.training.lr)

    def set_lr(self, lr: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    # -- Shared by methods -------------------------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def batches(self, task: Task, generator: torch.Generator | None, batch_size: int | None = None) -> Iterator[Batch]:
        """Yield the batches of one pass over the training part of a task."""
        return task.train.batches(batch_size or self.training.batch_size, generator, self.device)

    # -- For the record ----------------------------------------------------------------------------------

    @property
    def memory_bytes(self) -> int:
        """Bytes kept for the sake of past tasks, beyond the model and its optimizer."""
        return 0

    @property
    def directions(self) -> int:
        """The number of stored directions in the layer that holds most; 0 for methods that store none."""
        return 0

    @property
    def decisions(self) -> dict[str, dict[str, int]]:
        """{layer: {accept, project, discard, zero}} of methods that gate; empty for the others."""
        return {}

    @property
    def layer_telemetry(self) -> dict[str, dict[str, float]]:
        """{layer: {name: value}} of the last step: cosine and kept of a gate, drift and allowed of a bound."""
        return {}

    def concerns(self) -> list[str]:
        """Return one line per problem that a reader of the results should know, such as a penalty that never acted."""
        return []

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict(), **{name: getattr(self, name) for name in self.saved}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        for name in self.saved:
            setattr(self, name, map_tensors(lambda tensor: tensor.to(self.device, copy=True), state[name]))
