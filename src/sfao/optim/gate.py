"""The gate: layers with memories, gating their gradients, and storing what must not be overwritten."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar, Unpack

import torch
from torch import Tensor, distributed, nn
from torch._compile import _disable_dynamo

from sfao.checks import check_choice, check_names, check_seed
from sfao.gating.budget import MemoryPlan
from sfao.gating.options import DEFAULTS, GATE_WIDE, GateOptions, check_group_names
from sfao.optim._agreement import DecisionCheck, store_together
from sfao.optim._attachment import Attachment
from sfao.optim._books import Momentum, change_books
from sfao.optim._changes import Changes
from sfao.optim._choose_path import choose_path
from sfao.optim._consolidation.batches import Request
from sfao.optim._consolidation.objectives import Loss, Objective
from sfao.optim._consolidation.store import store_memories
from sfao.optim._gate_path import Path, PathHistory
from sfao.optim._gate_state import Saves
from sfao.optim._looks import Looks
from sfao.optim._membership import check_members
from sfao.optim._planning import check_new_group, check_same_options, plan_options
from sfao.optim._precision import work_exactly
from sfao.optim._ranks import find_ranks
from sfao.optim._sharding.checks import check_same_shards, find_group_shards
from sfao.optim._sharding.choose import make_path, make_softening
from sfao.optim._sharding.shards import Shards
from sfao.optim._sharding.store import store_shards
from sfao.optim._sketch import check_sketches
from sfao.optim._softening import Softening, soften_updates
from sfao.optim._whole_or_not import leave_undisturbed
from sfao.optim.layers import Layer, Parameters, as_groups, describe_groups, read_options

T = TypeVar("T")

GRANULARITIES = ("layer", "global")
OPTION_NAMES = tuple(DEFAULTS)


class Gate(Looks, Changes, Saves):
    """Gates what an optimizer does to each layer by what the layer remembers of past tasks.

    Used through :class:`sfao.SFAO`, or attached to any other optimizer::

        gate = Gate(layer_groups(model)).attach(torch.optim.AdamW(model.parameters()))

    Args:
        params: param groups (one layer each, see :func:`sfao.layer_groups`) or parameters (one layer each).
            A group may override any of the options below.
        granularity: ``"layer"``, or ``"global"`` to join all layers into one.
        seed: of the generators that draw samples and evictions; torch's own are never used.
        memory_budget: how many bytes may be held (``"64MiB"``). Picks ``axes`` and, of directions, ``storage``,
            ``rank``, ``memory_dtype`` and, where they do not fit, fewer of them: see :attr:`memory_plan`.
        process_group: ranks of torch.distributed that train one model: they consolidate together, each its own batches,
            and end with one memory. By default all of them. ``sync=False`` if each trains a model of its own.
        options: see :class:`sfao.gating.options.GateOptions`.
    """

    def __init__(
        self,
        params: Parameters,
        *,
        granularity: str = "layer",
        seed: int = 0,
        memory_budget: str | int | None = None,
        process_group: Any = None,
        sync: bool = True,
        **options: Unpack[GateOptions],
    ) -> None:
        check_names(options, OPTION_NAMES, GATE_WIDE)
        groups = as_groups(params)
        if not groups:
            raise ValueError("`params` must hold at least one parameter, got none")
        chosen, plan = plan_options(groups, memory_budget, options)
        self._set_up(granularity, seed, plan, chosen, find_group_shards(groups, sync))
        self.process_group, self.sync = process_group, sync
        for group in groups:
            check_group_names(group, OPTION_NAMES)
            self.add_group({**chosen, **group})

    @classmethod
    def without_layers(
        cls,
        granularity: str,
        seed: int,
        memory_plan: MemoryPlan | None,
        defaults: dict[str, Any],
        shards: Shards | None = None,
    ) -> Self:
        """Return a gate whose layers `add_group` brings in: those of an optimizer that owns the groups."""
        gate = cls.__new__(cls)
        gate._set_up(granularity, seed, memory_plan, defaults, shards)
        return gate

    def _set_up(
        self,
        granularity: str,
        seed: int,
        memory_plan: MemoryPlan | None,
        defaults: dict[str, Any],
        shards: Shards | None,
    ) -> None:
        check_choice("granularity", granularity, GRANULARITIES)
        check_seed(seed)
        self.granularity, self.seed = granularity, seed
        self.memory_plan, self.defaults = memory_plan, defaults
        self.task = 0
        self.layers: list[Layer] = []
        self.param_groups: list[dict[str, Any]] = []
        #: The ranks that hold the parameters in shards, None if each holds all of them.
        self.shards = shards
        self._path: Path = make_path(self.layers, shards, PathHistory())
        self.softening: Softening | None = None
        self._attachment: Attachment | None = None
        self._checked: list[Tensor] = []
        self._decision_check: DecisionCheck | None = None
        #: Sketches of the weights that a memory is of which was loaded, until these were seen.
        self._unseen: dict[str, list[float]] = {}
        self._hooks: OrderedDict[int, Callable[[Any], object]] = OrderedDict()
        self._set_up_looks()

    # -- Layers ----------------------------------------------------------------------------------------

    def add_group(self, group: dict[str, Any]) -> None:
        """Take in a named param group with all options set."""
        check_new_group(group, self.param_groups, self.granularity, self.memory_plan)
        check_same_shards(group, self.shards)
        if self.granularity == "layer" or not self.layers:
            generator = torch.Generator().manual_seed(self.seed + 7919 * len(self.layers))
            name = "model" if self.granularity == "global" else group["name"]
            self.layers.append(Layer(name, group, generator, self.shards))
        self.layers[-1].add_parameters(list(group["params"]), group)
        self.param_groups.append(group)

    @property
    def device(self) -> torch.device:
        """The device of the first parameter."""
        first: Tensor = self.param_groups[0]["params"][0]
        return first.device

    # -- Gating ----------------------------------------------------------------------------------------

    # A compiled step() compiles the descent around the gate: tracing the gate itself takes minutes and gains nothing.
    # What torch's own optimizers use: torch.compiler.disable would import the compiler together with this module.
    @_disable_dynamo
    def apply(self) -> Tensor | None:
        """Turn the gradient g of every layer into its update u, in place, as the gate decides.

        On a device nothing waits for what is decided. A gradient that is not finite then makes all updates zero,
        and the flag returned, on the device, false; it is raised when somebody looks, or some steps later.
        """
        sound = self._exactly(self._gate_layers)
        if self._decision_check is not None:
            self._decision_check.count(self)
        return sound

    def _gate_layers(self) -> Tensor | None:
        self._check_options()
        self._check_layers()
        if not self._path.serves():
            self._path = choose_path(self.layers, self._path)
        sound = self._path.step(None if self._attachment else self.find_softening())
        if self._interest:
            self._look_at_update()
        return sound

    def _check_layers(self) -> None:
        """Raise a RuntimeError if the layers' parameters are not those of the groups, or not those remembered."""
        if self._postponed is not None:
            postponed, self._postponed = self._postponed, None
            raise postponed
        if self._attachment is None:
            members = [parameter for group in self.param_groups for parameter in group["params"]]
            known = self._checked
            if len(members) != len(known) or any(a is not b for a, b in zip(members, known, strict=True)):
                check_members(self.layers, members, ())
                self._checked = members
        self._check_weights()

    def _check_weights(self) -> None:
        """Raise a RuntimeError if the memory was loaded beside other weights than it is of."""
        if self._unseen:
            check_sketches(self.layers, self._unseen)
            self._unseen = {}

    def soften_updates(self, softening: Softening, before: dict[Tensor, Tensor]) -> None:
        """Soften what an optimizer has added to parameters since they were as they were before, in place."""
        self._exactly(lambda: soften_updates(softening, before))

    def note_softened(self, softening: Softening) -> None:
        """Note that what was softened last has been added to the parameters."""
        softening.travel(softening.lengths)
        self._path.note(softening)

    def find_softening(self) -> Softening | None:
        """Return the softening by the input spaces that are remembered now, None where there are none."""
        if not any(layer.space_version for layer in self.layers):
            return None
        if self.softening is None or not self.softening.serves():
            self.softening = make_softening(self._path, self.layers)
        return self.softening

    def _check_options(self) -> None:
        """Raise a ValueError if an option breaks its rule."""
        for layer in self.layers:
            if read_options(layer.options) != layer.checked_options:
                layer.check_options()
        if self.granularity == "global":
            for group in self.param_groups[1:]:
                check_same_options(group, self.param_groups[0])

    def _exactly(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, outside autograd and what would round the gate's products more than it may."""
        return work_exactly(work, self.device.type, lambda: all(layer.is_soft for layer in self.layers))

    # -- Storing ---------------------------------------------------------------------------------------

    def consolidate(
        self,
        model: nn.Module,
        batches: Iterable[object],
        loss: Loss | None = None,
        *,
        objective: Objective | None = None,
        target: str | None = None,
        per: str | None = None,
        limit: int | None = None,
    ) -> int:
        """Store what must not be lost of a finished task, and end it; return how many axes and directions that took.

        For the subspace, a few hundred examples go through the model once more. For directions, the gradients that the
        memory will hold are drawn first, and no others are taken.

        Args:
            batches: (inputs, targets) pairs of the task; for the subspace also mappings of arguments of the model, with
                an `objective` anything. Tensors inside are moved to the model, floating ones cast to its dtype.
            loss: called as ``loss(model(inputs), targets)``; needed for directions of ``target="loss"`` alone.
            objective: called as ``objective(model, batch)``, in place of `loss`; returns one number, or one for each
                example. It is given the model without what torch.compile or DistributedDataParallel wrap around it.
            target: of directions, store gradients of the ``"loss"`` (the default) or of the true class's ``"logit"``
                (of outputs batch x classes, or batch x time x classes, whose targets of -100 are left out).
            per: one gradient for each ``"batch"`` or ``"example"``. By default, batches for the loss and examples
                for logits, whose gradients have rank 1 in a Linear layer.
            limit: how many gradients, or examples for the subspace, to take at most, drawn uniformly. By default every
                batch, as many examples as the memory of directions can hold, and 600 for the subspace.

        The model is in eval mode meanwhile and its gradients, statistics and parameters stay as they are.
        If anything fails, the memory too stays as it was. Under torch.distributed, all ranks consolidate together.
        """
        return self.consolidate_task(model, Request(batches, loss, objective, target, per, limit), Momentum({}))

    def consolidate_task(self, model: nn.Module, request: Request, momentum: Momentum) -> int:
        """Consolidate as asked for, and end a momentum with the task, both or neither."""
        if self._lost_optimizer:
            raise RuntimeError(
                "a copy of an attached gate must be attached too: attach() it to the copy, or detach() it"
            )
        stored = change_books(self, lambda: self._consolidate(model, request, momentum), momentum.undo)
        for hook in list(self._hooks.values()):
            hook(self)
        return stored

    def _consolidate(self, model: nn.Module, request: Request, momentum: Momentum) -> int:
        is_alone = not self.sync or not distributed.is_available() or not distributed.is_initialized()
        ranks = None if is_alone else find_ranks(self.process_group)
        stored = self.store(model, request) if ranks is None else store_together(self, ranks, model, request)
        self._decision_check = None if ranks is None else DecisionCheck(ranks)
        self.end_task()
        momentum.end()
        return stored

    def store(self, model: nn.Module, request: Request, confirm: Callable[[], object] | None = None) -> int:
        """Store what a request asks for, if `confirm`, called last, does not raise; return how much."""
        request.check(self.layers)
        self._check_options()
        self._check_weights()
        self._close_path()
        return leave_undisturbed(model, self.device.type, lambda: self._store(model, request, confirm))

    def _store(self, model: nn.Module, request: Request, confirm: Callable[[], object] | None) -> int:
        if self.shards is not None:
            ranks = find_ranks(self.process_group)
            return store_shards(self.layers, self.shards, ranks, self.task, model, request, self._exactly, confirm)
        return store_memories(self.layers, self.task, model, request, self._exactly, confirm)

    def end_task(self) -> None:
        """Mark a task boundary: directions stored from now on belong to the next task."""
        self.task += 1

    def _close_path(self) -> None:
        if self._path.is_open or self._path.history.retired:
            self._path.close()

    def __repr__(self) -> str:
        return describe_groups("Gate", len(self.layers), self.granularity, self.param_groups, DEFAULTS)
