"""The paper's gate: it compares each layer's gradient with remembered ones and accepts, projects or discards it."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from statistics import fmean
from typing import Any, Concatenate, Never, ParamSpec, Self, TypeVar, Unpack

from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer
from torch.utils.hooks import RemovableHandle

from sfao.attachment import Attachment, check_free, check_optimizer, drop_stale_state
from sfao.batches import Loss, Objective
from sfao.checks import check_choice, check_seed
from sfao.consolidation import Task, consolidate, remember
from sfao.decision import COUNTED, Decision, Outcome
from sfao.distributed import is_sharded
from sfao.layers import Layer, Parameters, as_groups, check_fits, find_replaced, layer_groups
from sfao.options import GATE_WIDE, GRANULARITIES, OPTIONS, GateOptions, check_names, complete_group, describe
from sfao.state import adopt_state, parse_state, write_state
from sfao.step import apply_gate, measure_risk

P = ParamSpec("P")
T = TypeVar("T")


class Gate:
    """Gates every layer's gradient g by remembered directions B of past gradients, before an optimizer sees it.

    With s the largest cosine of g with k sampled directions, the optimizer gets g if s > `accept_above`; else the
    projection of g off the span of B if s > `discard_below`; else nothing, and the layer doesn't move at all.

    Args:
        params: a model; or param groups (one layer each, see :func:`sfao.layer_groups`), which may override the options
            below; or parameters (one layer each).
        granularity: ``"layer"``, or ``"global"`` to join all layers into one.
        seed: of the draws of samples and evictions. Torch's global generators are never used.
        process_group: the ranks of torch.distributed that train one model. They consolidate together, each with its
            own batches, and end with one memory. By default all ranks.
        sync: False if every rank trains a model of its own.
        options: see :class:`sfao.options.GateOptions`.

    Example::

        >>> optimizer = torch.optim.AdamW(model.parameters())
        >>> gate = sfao.Gate(model).attach(optimizer)
        >>> train(model, optimizer, batches)
        >>> gate.consolidate(batches, loss)
    """

    def __init__(
        self,
        params: Parameters,
        *,
        granularity: str = "layer",
        seed: int = 0,
        process_group: Any = None,
        sync: bool = True,
        **options: Unpack[GateOptions],
    ) -> None:
        check_choice("granularity", granularity, GRANULARITIES)
        check_seed(seed)
        check_names(options, "Gate", (*OPTIONS, *GATE_WIDE))
        self.model = params if isinstance(params, nn.Module) else None
        self.granularity, self.seed, self.process_group, self.sync = granularity, seed, process_group, sync
        self.options, self.tasks, self.last = dict(options), 0, Outcome()
        self.layers: list[Layer] = []
        self.param_groups: list[dict[str, Any]] = []
        self.is_sharded = False
        #: False until the gate is in front of an optimizer.
        self.is_used = False
        #: True if all parameters that the attached optimizer trains were gated when it was attached.
        self.covers_all = False
        #: Parameters of the optimizer, and layers with gradients, when the model was last compared with them.
        self.checked_members: list[int] = []
        self.with_gradient: list[str] = []
        #: Captured steps on CUDA; see `sfao.graph_step`.
        self.graphs: dict[Any, Any] = {}
        #: Fingerprints of the weights that a loaded memory belongs to, until they have been compared.
        self.fingerprints: dict[str, list[float]] = {}
        self.hooks: OrderedDict[int, Callable[[Any], object]] = OrderedDict()
        self._attachment: Attachment | None = None
        self._hidden: dict[Tensor, Tensor] = {}
        for group in as_groups(params):
            self._add_group(group)
        if self.is_sharded and not sync:
            raise ValueError("`sync` must be True for a model in shards, got False")
        check_fits(self.param_groups)

    # -- Layers ----------------------------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a layer, a dict with parameters under ``"params"`` and perhaps a ``"name"`` and options."""
        (group,) = as_groups([param_group], self.param_groups)
        self._add_group(group)

    def _add_group(self, group: dict[str, Any]) -> None:
        complete_group(group, self.options, "Gate")
        for name in OPTIONS if self.granularity == "global" and self.layers else ():
            if group[name] != (first := self.param_groups[0][name]):
                raise ValueError(
                    f'`{name}` must be the same in all groups when granularity="global", got {first!r} and '
                    f"{group[name]!r}"
                )
        if self.granularity == "layer" or not self.layers:
            name = group["name"] if self.granularity == "layer" else "model"
            self.layers.append(Layer(name, group, self.seed + 7919 * len(self.layers)))
        self.layers[-1].add_parameters(group["params"], group)
        self.param_groups.append(group)
        self.is_sharded = self.is_sharded or any(map(is_sharded, group["params"]))

    def rebind(self, model: nn.Module) -> list[str]:
        """Follow a model in which modules were replaced; return the names of the layers that changed.

        A layer is found by its name. It may have more rows, after the old ones, in which its directions are zero.
        Parameters that came into the attached optimizer become layers too, if all that it had were gated.
        """
        replaced = find_replaced(self.layers, model)
        if replaced and self.granularity == "global":
            raise ValueError('rebind() follows layers one by one; it needs granularity="layer", got "global"')
        if self.optimizer is not None:
            check_optimized(self.optimizer, {own.name: replaced.get(own, own.parameters) for own in self.layers})
            drop_stale_state(self.optimizer)
        for layer, parameters in replaced.items():
            layer.replace_parameters(parameters)
        changed, new = [layer.name for layer in replaced], set(self.find_ungated() if self.covers_all else ())
        for group in layer_groups(model):
            added = [parameter for parameter in group["params"] if parameter in new]
            if added:
                self.add_param_group({**group, "params": added})
                changed.append(group["name"])
        self.model = None if self.model is None else model
        return changed

    def find_ungated(self) -> list[Tensor]:
        """Return the parameters that the attached optimizer trains and that are in no layer."""
        gated = {parameter for layer in self.layers for parameter in layer.parameters}
        groups = () if self.optimizer is None else self.optimizer.param_groups
        trained = [parameter for group in groups for parameter in group["params"] if parameter.requires_grad]
        return [parameter for parameter in trained if parameter not in gated and parameter.numel()]

    # -- Steps -----------------------------------------------------------------------------------------

    @property
    def optimizer(self) -> Optimizer | None:
        """The attached optimizer."""
        return None if self._attachment is None else self._attachment.optimizer

    def attach(self, optimizer: Optimizer) -> Self:
        """Gate every step of an optimizer from now on; return the gate.

        Args:
            optimizer: any torch optimizer over the gated parameters that takes one gradient per step. Its `state_dict`
                holds the memory under ``"sfao"``. It may have other parameters, which stay free.

        Example::

            >>> gate = sfao.Gate(model).attach(torch.optim.AdamW(model.parameters()))
        """
        check_free("gate", [self._attachment])
        if isinstance(optimizer, LBFGS):
            raise ValueError("`optimizer` must take one gradient per step, got LBFGS, whose history moves all layers")
        check_optimizer(optimizer, self.tasks)
        check_optimized(optimizer, {layer.name: layer.parameters for layer in self.layers})
        self._attachment, self.is_used = Attachment(self, optimizer), True
        self.covers_all = not self.find_ungated()
        return self

    def detach(self) -> None:
        """Remove the gate from its optimizer."""
        if self._attachment is not None:
            self._attachment.remove()
            self._attachment, self.is_used = None, False

    def before_step(self, optimizer: Optimizer) -> None:
        """Gate the gradients, and hide those of discarded layers: neither momentum nor weight decay moves these."""
        apply_gate(self, optimizer.param_groups)
        discarded = [layer for layer in self.layers if self.last.decisions.get(layer.name) is Decision.DISCARD]
        self._hidden = {p: p.grad for layer in discarded for p in layer.parameters if p.grad is not None}
        for parameter in self._hidden:
            parameter.grad = None

    def after_step(self, optimizer: Optimizer) -> None:
        """Show the gradients of discarded layers again; they are zero."""
        for parameter, gradient in self._hidden.items():
            parameter.grad = gradient if parameter.grad is None else parameter.grad
        self._hidden = {}

    # -- Storing ---------------------------------------------------------------------------------------

    def consolidate(
        self,
        batches: Iterable[Any],
        loss: Loss | None = None,
        *others: Never,
        objective: Objective | None = None,
        model: nn.Module | None = None,
        target: str | None = None,
        per: str | None = None,
        limit: int | None = None,
    ) -> int:
        """Store directions of a finished task, and end it; return how many were stored.

        The model is in eval mode meanwhile, and nothing in it changes. If anything fails, the memory stays as it was.
        Under torch.distributed all ranks call this together.

        Args:
            batches: (inputs, targets) pairs of the task, mappings of the model's arguments, a DataLoader, or anything
                that `objective` reads. Tensors are moved to the model and cast to its dtype.
            loss: called as ``loss(model(inputs), targets)``. May be left out for mappings if the model returns a loss.
            objective: called as ``objective(model, batch)``, in place of `loss`; returns one number or one per example.
            model: needed if this was built from parameters or param groups.
            target: store gradients of the ``"loss"`` (default) or of the true class's ``"logit"``.
            per: one gradient for each ``"batch"`` (default for losses) or ``"example"`` (default for logits).
            limit: take at most so many gradients, of batches drawn uniformly, or of single examples as
                :class:`sfao.DriftBound` draws them. By default every batch, or as many examples as the memory can hold.

        Example::

            >>> gate.consolidate(loader, nn.CrossEntropyLoss())
        """
        task = Task(batches, loss, objective, target, per, limit)
        if others:
            raise TypeError("only `batches` and `loss` may be given by position; call consolidate(batches, loss)")
        return consolidate(self, model, task)

    def remember(self) -> int:
        """Store the directions of the gradients that backward() left; return how many were stored."""
        return remember(self)

    def end_task(self) -> None:
        """End a task without storing anything: directions stored from now on belong to the next one."""
        self.tasks += 1

    def register_consolidate_hook(self, hook: Callable[[Any], object]) -> RemovableHandle:
        """Call ``hook(gate)`` after every consolidation; return a handle with a method `remove`."""
        handle = RemovableHandle(self.hooks)
        self.hooks[handle.id] = hook
        return handle

    # -- Telemetry -------------------------------------------------------------------------------------

    @property
    def last_decisions(self) -> dict[str, Decision]:
        """The decisions of the last step by layer; a layer whose gradient was zero isn't in it."""
        return dict(self.last.decisions)

    @property
    def last_cosines(self) -> dict[str, float]:
        """The largest sampled cosine of each layer at the last step, where there were directions to compare with."""
        return dict(self.last.cosines)

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Decisions so far: {layer: {accept, project, discard, zero}}."""
        return {layer.name: dict(layer.counts) for layer in self.layers}

    @property
    def memory_bytes(self) -> int:
        """Bytes of the stored directions, with the room that is allocated for more."""
        return sum(layer.memory.bytes for layer in self.layers)

    @property
    def is_empty(self) -> bool:
        """True if no direction is stored."""
        return not any(len(layer.memory) for layer in self.layers)

    def kept(self) -> dict[str, float]:
        """Return |u| / |g| of the last step for each layer with directions: the share of the gradient that was kept."""
        return dict(self.last.kept)

    def risk(self, *, sampled: bool = False) -> float:
        """Return the interference risk of the last update u: the most that it points against a unit direction.

        The update is read from `.grad`, so call this after step() and before zero_grad().

        Args:
            sampled: the paper's R(u; C) over the directions that were sampled at the last step, instead of all.
        """
        return measure_risk(self, sampled=sampled)

    def telemetry(self) -> dict[str, float]:
        """Return numbers to watch a run by, in a flat dict.

        ``accept``, ``project``, ``discard`` and ``zero`` count decisions so far, over all layers and for each, as
        ``layers/NAME/accept``. ``layers/NAME/cosine`` and ``/kept`` belong to the last step; ``kept`` is the mean over
        layers. ``tasks`` and ``memory_bytes`` describe the memory.
        """
        counts, last = self.counts, {"cosine": self.last.cosines, "kept": self.last.kept}
        values = {"tasks": float(self.tasks), "memory_bytes": float(self.memory_bytes)}
        values |= {name: float(sum(of_layer[name] for of_layer in counts.values())) for name in COUNTED}
        values |= {"kept": fmean(self.last.kept.values())} if self.last.kept else {}
        values |= {f"layers/{layer}/{name}": float(n) for layer, found in counts.items() for name, n in found.items()}
        values |= {f"layers/{layer}/{kind}": value for kind, found in last.items() for layer, value in found.items()}
        return values

    def __repr__(self) -> str:
        return describe("Gate", self, self.param_groups)

    # -- State -----------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return memories, counts, generators and options, in plain containers and tensors."""
        return write_state(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a state; raise a RuntimeError, and change nothing, if it belongs to another model."""
        self.adopt_state(self.parse_state(state_dict))

    def parse_state(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return a state, checked against this gate, for :meth:`adopt_state`."""
        return parse_state(self, state)

    def adopt_state(self, parsed: dict[str, Any]) -> None:
        """Continue from a checked state."""
        adopt_state(self, parsed, self.param_groups)

    def __getstate__(self) -> dict[str, Any]:
        # A copy has no optimizer yet: attach() it.
        alone: dict[str, Any] = {"_attachment": None, "is_used": False, "checked_members": []}
        return {**self.__dict__, **alone, "_hidden": {}, "hooks": OrderedDict(), "graphs": {}}


def check_optimized(optimizer: Optimizer, layers: Mapping[str, Iterable[Tensor]]) -> None:
    """Raise a ValueError if an optimizer lacks a parameter of one of these layers."""
    members = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    for name, parameters in layers.items():
        if not members.issuperset(parameters):
            raise ValueError(f"`optimizer` must optimize all gated parameters, but not those of {name!r}")


def of_gate(method: Callable[Concatenate[Gate, P], T], *, ends_task: bool = False) -> Callable[Concatenate[Any, P], T]:
    """Return a method of SFAO that calls one of its gate. If that ends a task, momentum starts again."""

    @wraps(method)
    def call(optimizer: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result = method(optimizer.gate, *args, **kwargs)
        for state in optimizer.state.values() if ends_task else ():
            state.pop("momentum_buffer", None)
        return result

    return call
