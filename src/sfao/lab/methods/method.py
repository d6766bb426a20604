"""The interface of the laboratory's methods: ways to learn a stream of tasks, one batch at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from sfao.lab.methods.descent import Descent
from sfao.lab.methods.search_range import SearchSpace
from sfao.lab.streams.labelled_images import Batch
from sfao.lab.streams.stream import Task


class MethodOptions(BaseModel):
    """The options of a method: names, defaults and rules, checked when a run is configured."""

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


class Method:
    """Plain gradient descent; methods override what they do differently.

    A method with options of its own names their class twice: as `Options`, and as the type of `options`.

    The loop calls `begin_task`, then `step` for every batch, then `end_task`. Everything a method keeps from one
    call to the next is in `state_dict`, in plain containers and tensors: a run that is killed anywhere must resume
    from its checkpoint bit for bit.
    """

    name: ClassVar[str]
    Options: ClassVar[type[MethodOptions]] = MethodOptions
    #: The options that `sfao tune` chooses where no `--search` is given; empty for a method without any to choose.
    search_space: ClassVar[SearchSpace] = {}
    #: True if every task is trained together with all tasks before it.
    revisits: ClassVar[bool] = False
    #: True if examples of past tasks are kept, which the purpose of SFAO is to do without.
    stores_data: ClassVar[bool] = False
    #: True if a gate changes its updates, which `looks` and `measure_risk` then tell of.
    is_gated: ClassVar[bool] = False
    #: True if it answers each task with weights of its own, and must be told the task: for scenario `task` alone.
    needs_task: ClassVar[bool] = False

    def __init__(self, model: nn.Module, training: Training, options: MethodOptions) -> None:
        self.model = model
        self.training = training
        self.options = options
        self.optimizer = self.make_optimizer()

    def make_optimizer(self) -> Optimizer:
        return Descent(self.model.parameters(), **self.descent())

    def descent(self) -> dict[str, Any]:
        """Return the arguments of the optimizer that all methods share."""
        return {name: getattr(self.training, name) for name in ("lr", "momentum", "momentum_form", "weight_decay")}

    # -- What the loop calls -----------------------------------------------------------------------------

    def begin_task(self, number: int, task: Task) -> None:
        """Prepare for task `number`, counted from 0."""

    def step(self, inputs: Tensor, targets: Tensor, outputs: slice) -> Tensor:
        """Make one update on one batch and return its loss, detached. Targets count from the first of `outputs`."""
        self.optimizer.zero_grad()
        loss = self.loss(inputs, targets, outputs)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def end_task(self, number: int, task: Task, generator: torch.Generator) -> None:
        """Store what later tasks need of task `number`, which has just been learnt."""
        for state in self.optimizer.state.values():
            state.pop("momentum_buffer", None)  # momentum starts again

    @contextmanager
    def lend_model(self, number: int) -> Iterator[nn.Module]:
        """Lend the model with the weights that answer task `number`; they differ where a method `needs_task`."""
        yield self.model

    @property
    def is_at_rest(self) -> bool:
        """True if saving the state now would not change the run."""
        return True

    def tighten(self) -> str:
        """Learn more carefully until `relax`, after a rollback; return what has changed, in words."""
        old = self.optimizer.param_groups[0]["lr"]
        self._set_rate(old / 2)
        return f"lr {old:g} -> {old / 2:g}"

    def relax(self) -> None:
        """Learn as configured again: the task is over."""
        self._set_rate(self.training.lr)

    def _set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    # -- What methods share --------------------------------------------------------------------------------

    def loss(self, inputs: Tensor, targets: Tensor, outputs: slice) -> Tensor:
        return cross_entropy(self.model(inputs)[:, outputs], targets)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def batches(self, task: Task, generator: torch.Generator | None, batch_size: int | None = None) -> Iterator[Batch]:
        """Yield the batches of one pass over the training part of a task."""
        return task.train.batches(batch_size or self.training.batch_size, generator, self.device)

    # -- What a record contains ---------------------------------------------------------------------------------

    @property
    def memory_bytes(self) -> int:
        """Bytes kept for the sake of past tasks, beyond the model and its momentum."""
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
    def looks(self) -> dict[str, dict[str, float]]:
        """{layer: {name: value}} of the last step: cosine and kept of a gate, drift and allowed of a bound."""
        return {}

    def measure_risk(self) -> tuple[float, float]:
        """Return the interference risk of the last update and its length, of methods that gate."""
        raise NotImplementedError(f"{self.name} has no gate to measure a risk by; the guard refuses such methods first")

    def concerns(self) -> list[str]:
        """Return one line per problem that a reader of the results should know, such as a penalty that never acted."""
        return []

    # -- State -------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
