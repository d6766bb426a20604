"""DriftBound: train with any optimizer while every layer's outputs on past inputs stay nearly the same."""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from typing import Any, Never, Self

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.optim import LBFGS, Optimizer

from sfao.attachment import Attachment, check_free, check_optimizer, drop_stale_state, list_parameters
from sfao.batches import Batch, Loss, Objective, check_batches, make_objective, unwrap
from sfao.bounded_layers import BoundedLayer, FreezeStatistics, WeakHook, find_layers, warn_of_unbounded
from sfao.capture import capture_task
from sfao.checks import check_count, check_seed, is_number, nearest
from sfao.clipping import UnitClip
from sfao.distributed import Ranks, reshard
from sfao.drift_memory import LayerMemory, grow_memory, read_memory, remember_task
from sfao.drift_projection import Projection

DEFAULTS: dict[str, Any] = {"tolerance": 0.1, "every": 8, "energy": 0.97, "examples": 600, "clip": 0.3, "seed": 0}
#: Loaded weights may have this many times their allowed drift.
LOADED_SLACK = 1.1


class DriftBound:
    r"""Bounds the drift of every layer's outputs on the inputs of past tasks.

    At the end of a task, :meth:`consolidate` stores the second moments of each layer's inputs and a copy of its
    weights :math:`W^*`. From then on, with t tasks stored, the weights W of the layer obey

    .. math:: E |(W - W^*) x|^2 \le \frac{tolerance^2}{t} E |W^* x|^2

    over the inputs x of past tasks. If steps of the optimizer leave this set, W becomes its nearest point. Inside the
    set nothing changes, so any optimizer works, with momentum, weight decay and schedules. Every `every` steps, and
    before evaluation, ``state_dict()`` and :meth:`consolidate`, the weights are projected; before anything else that
    reads them (an average of weights, ``deepcopy``, a call of a submodule) call :meth:`apply`.

    From the first consolidation on, BatchNorm normalizes with its running statistics, in training too. Gradients of
    such models are clipped per unit.

    Linear, Conv1d, Conv2d, Conv3d, BatchNorm, LayerNorm, GroupNorm and Embedding layers are bounded. Others train as
    usual; :meth:`consolidate` names them in a warning.

    Args:
        model: the model. If it is compiled with ``fullgraph=True``, pass the compiled model.
        tolerance: the allowed drift, in (0, 1], or ``{layer name: tolerance}``; layers that are not named have 0.1.
        every: steps between projections.
        energy: the share of the trace of the input moments, beyond the largest axis, that is stored as axes; one value
            covers the rest.
        examples: examples of a task that :meth:`consolidate` runs.
        clip: the largest norm of a unit's gradient, relative to the norm of its weights, in models with BatchNorm.
            None disables clipping.
        seed: seed for drawing examples and input rows.
        process_group: ranks of torch.distributed that train one model; all of them by default.
        sync: False if every rank trains a model of its own.

    Example::

        >>> optimizer = torch.optim.AdamW(model.parameters())
        >>> bound = sfao.DriftBound(model, tolerance=0.1).attach(optimizer)
        >>> for task in tasks:
        ...     for x, y in task:
        ...         optimizer.zero_grad()
        ...         loss(model(x), y).backward()
        ...         optimizer.step()
        ...     bound.consolidate(task, loss)
    """

    def __init__(
        self,
        model: nn.Module,
        tolerance: float | Mapping[str, float] = 0.1,
        *,
        every: int = 8,
        energy: float = 0.97,
        examples: int = 600,
        clip: float | None = 0.3,
        seed: int = 0,
        process_group: Any = None,
        sync: bool = True,
        **options: Any,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise ValueError(f"`model` must be a torch.nn.Module, got a {type(model).__name__}")
        if options:
            from sfao.options import check_names  # only needed here

            check_names(options, "DriftBound", tuple(DEFAULTS))
        check_count("every", every)
        check_count("examples", examples)
        check_seed(seed)
        if not (is_number(energy) and 0 < energy <= 1):
            raise ValueError(f"`energy` must be in (0, 1], got {energy!r}")
        if clip is not None and not (is_number(clip) and clip > 0):
            raise ValueError(f"`clip` must be above 0, or None, got {clip!r}")
        self.model, self._inner = model, unwrap(model)
        #: What is stored of each layer, and the number of consolidated tasks.
        self.memory: dict[str, LayerMemory] = {}
        self.tasks = 0
        self.tolerance = tolerance
        self.every, self.energy, self.examples, self.clip, self.seed = every, energy, examples, clip, seed
        self.process_group, self.sync = process_group, sync
        #: The memory before the last task, until a step is taken: more consolidations belong to the same task.
        self._before: dict[str, LayerMemory] | None = None
        self._layers: dict[str, BoundedLayer] = {}
        self._projection = Projection({}, {}, {}, {}, ())
        self._clip = None if clip is None else UnitClip(clip)
        self._attachments: list[Attachment] = []
        self._steps = 0
        #: Weights changed since the last projection; a backward pass may follow.
        self._is_dirty = self._is_pending = False
        #: Modules whose weights were loaded, and must be checked.
        self._loaded: set[nn.Module] = set()
        #: Parameters with a gradient at the first step of a task, to warn of those that can't be bounded, once.
        self._trained: set[Tensor] = set()
        self._was_warned = False
        #: Weights, and their data, while projected copies are in their place.
        self._swapped: list[tuple[Tensor, Tensor]] = []
        self._generator = torch.Generator("cpu").manual_seed(seed)
        self._freeze = FreezeStatistics()
        self._hook_model()

    @property
    def tolerance(self) -> float | Mapping[str, float]:
        """The allowed drift, of all layers or by name. It may be changed at any time."""
        return self._tolerance

    @tolerance.setter
    def tolerance(self, tolerance: float | Mapping[str, float]) -> None:
        by_layer = tolerance if isinstance(tolerance, Mapping) else {None: tolerance}
        names = tuple(find_layers(self._inner))
        for name, value in by_layer.items():
            if not (is_number(value) and 0 < value <= 1):
                raise ValueError(f"`tolerance` must be in (0, 1], got {value!r}")
            if name is not None and name not in names:
                raise ValueError(f"`tolerance` must name layers of the model, got {name!r}{nearest(name, names)}")
        self._tolerance = tolerance
        if self.memory:
            self._set_memory(self.memory, self._layers, self._projection.mixed_names)
            self._is_dirty = True

    def _tolerance_of(self, name: str) -> float:
        tolerance: Any = self.tolerance
        return float(tolerance.get(name, DEFAULTS["tolerance"]) if isinstance(tolerance, Mapping) else tolerance)

    def _hook_model(self) -> None:
        root = self.model
        while isinstance(root, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
            root = root.module
        root.register_forward_pre_hook(WeakHook(self._before_forward), prepend=True)
        root.register_forward_hook(WeakHook(self._restore), always_call=True)
        self._inner.register_state_dict_pre_hook(WeakHook(self._before_reading))
        self._inner.register_state_dict_post_hook(WeakHook(self._restore))
        for module in self._inner.modules():
            module.register_load_state_dict_post_hook(WeakHook(self._after_loading))
        self._freeze.hook(self._inner)
        if "torch._dynamo" in sys.modules:  # code that was compiled before ignores new hooks
            torch.compiler.reset()

    # -- Around steps ----------------------------------------------------------------------------------

    def attach(self, *optimizers: Optimizer) -> Self:
        """Bound the steps of one or more optimizers of this model from now on; return the bound.

        The memory is saved in the ``state_dict`` of the first.
        """
        if not optimizers:
            raise ValueError("`optimizers` must hold at least one optimizer, got none")
        check_free("bound", self._attachments)
        own = set(self._inner.parameters())
        for optimizer in optimizers:
            check_optimizer(optimizer, self.tasks)
            if own.isdisjoint(list_parameters(optimizer)):
                raise ValueError(
                    f"`optimizer` must optimize parameters of the model, got a {type(optimizer).__name__} of none"
                )
        if len(set(optimizers)) < len(optimizers):
            raise ValueError("`optimizers` must differ, got one twice")
        self._attachments = [Attachment(self, own, holds_state=own is optimizers[0]) for own in optimizers]
        self._freeze.active = self.tasks > 0
        return self

    def detach(self) -> None:
        """Project the weights once more, then leave the optimizers and BatchNorm as they were."""
        self._flush()
        for attachment in self._attachments:
            attachment.remove()
        self._attachments, self._freeze.active = [], False

    def before_step(self, optimizer: Optimizer) -> None:
        """Check loaded weights and clip gradients. Called by the optimizer's hooks."""
        if not self._trained:
            self._trained = {parameter for parameter in self._inner.parameters() if parameter.grad is not None}
        if not self.memory:
            return
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                "a step with a DriftBound attached can't be captured in a CUDA graph; capture the forward and backward "
                "passes and call optimizer.step() outside"
            )
        if self._loaded:
            self._check_loaded()
        if self._clip is not None and self._freeze.modules and not isinstance(optimizer, LBFGS):
            self._clip.apply(list_parameters(optimizer))

    def after_step(self, optimizer: Optimizer) -> None:
        """Project every few steps. Called by the optimizer's hooks."""
        self._is_pending, self._before = False, None
        if not self.memory:
            return
        self._projection.note_gradients()
        self._is_dirty = True
        self._steps += 1
        if self._steps >= self.every * len(self._attachments) or isinstance(optimizer, LBFGS):
            self._project(is_fast=True)

    @property
    def is_projected(self) -> bool:
        """True if no step was taken since the last projection: saving and evaluation will change nothing."""
        return not self._is_dirty

    def apply(self) -> None:
        """Project the weights of every layer to the nearest point of its set.

        Call it before reading weights in a way the bound can't see, for example before averaging them. Under FSDP2 and
        tensor parallel all ranks must call it.

        Example::

            >>> bound.apply()
            >>> averaged_model.update_parameters(model)
        """
        if self._loaded:
            self._check_loaded()
        self._project()

    @_disable_dynamo
    def _project(self, *, is_fast: bool = False) -> None:
        self._steps, self._is_dirty = 0, False
        with self._computing():
            self._projection.apply(is_fast=is_fast)
        if self._clip is not None:
            self._clip.refresh()
        if self._projection.waits:
            self._check_finite(self._projection.largest)

    @contextmanager
    def _computing(self) -> Iterator[None]:
        """Check that the layers are still those of the model, and compute without autograd and autocast."""
        if self._is_sharded:
            reshard(self._inner)
        for name, layer in self._layers.items():
            if not layer.is_part_of(self._inner):
                raise RuntimeError(f"layer {name!r} must be part of the model, but was replaced; call rebind()")
            if layer.weight.device != self.memory[name].anchor.device:
                memory = {name: own.to(layer.weight.device) for name, own in self.memory.items()}
                self._set_memory(memory, self._layers, self._projection.mixed_names)
                break
        device = next(self._inner.parameters()).device.type
        with torch.inference_mode(False), torch.no_grad(), torch.autocast(device, enabled=False):
            yield

    @property
    def _is_sharded(self) -> bool:
        return any(layer.is_sharded for layer in self._layers.values())

    def _flush(self) -> None:
        """Project if steps were taken since the last time, and raise if weights stopped being finite."""
        if self._is_dirty:
            self.apply()
        self._check_finite(self._projection.largest)

    def _check_finite(self, drifts: Tensor) -> None:
        if not isfinite(float(drifts.sum())):
            name = self._projection.names[int(torch.isfinite(drifts).int().argmin())]
            raise RuntimeError(f"the weights of layer {name!r} must be finite, got NaN or inf; lower the learning rate")

    # -- Around forward passes, saving and loading -----------------------------------------------------

    def _before_forward(self, module: nn.Module, args: object) -> None:
        if not module.training and self._is_dirty:
            self._before_reading()
        self._is_pending = self._is_pending or torch.is_grad_enabled()

    def _before_reading(self, *_: object) -> None:
        """Project the weights or, if a backward pass still needs them as they are, show projected copies meanwhile."""
        if not self._is_pending or not self._is_dirty:
            self._flush()
        elif self._is_sharded:
            raise RuntimeError("sharded weights can't be read between forward and backward; call apply() first")
        else:
            with self._computing():
                for layer, removed in self._projection.find_excess():
                    for parameter, value in zip(layer.parameters, removed, strict=True):
                        self._swapped.append((parameter, parameter.data))
                        parameter.data = (parameter.data.to(value.dtype) - value).to(parameter.dtype)

    def _restore(self, *_: object) -> None:
        while self._swapped:
            parameter, data = self._swapped.pop()
            parameter.data = data

    def _after_loading(self, module: nn.Module, keys: object) -> None:
        self._loaded.add(module)
        if all(layer.module in self._loaded for layer in self._layers.values()):
            self._is_dirty = False
        self._projection.largest.zero_()
        if self._clip is not None:
            self._clip.refresh()

    def _check_loaded(self) -> None:
        """Raise a RuntimeError if loaded weights are not those of the memory."""
        with self._computing():
            drifts, limits = self._projection.measure().tolist(), self._projection.allowed.tolist()
        for name, drift, limit in zip(self._projection.names, drifts, limits, strict=True):
            if self._layers[name].module in self._loaded and not drift <= LOADED_SLACK**2 * limit:
                raise RuntimeError(
                    f"the weights must be those of the memory, but layer {name!r} has {(drift / limit) ** 0.5:.1f} "
                    "times its allowed drift; load the weights that were saved with the memory, or raise `tolerance`"
                )
        self._loaded = set()

    # -- Consolidation ---------------------------------------------------------------------------------

    def consolidate(
        self, batches: Iterable[Batch], loss: Loss | None = None, *others: Never, objective: Objective | None = None
    ) -> int:
        """Store what must not be lost of a finished task; return the number of examples that were run.

        Consolidations without a step in between count as one task. If anything fails, nothing changes. Under
        torch.distributed all ranks must call it, each with batches of its own.

        Args:
            batches: a DataLoader, or an iterable of (inputs, targets) pairs or of mappings. Examples are drawn
                uniformly from a sequence of batches and from a DataLoader over a map-style data set; of another
                iterable the first ones are taken.
            loss: ``loss(outputs, targets)``. May be omitted for mappings: then it is ``model(**batch).loss``.
            objective: ``objective(model, batch)`` for any other batches.

        Example::

            >>> bound.consolidate(loader, torch.nn.CrossEntropyLoss())
        """
        check_batches(batches, loss, objective)
        if others:
            raise TypeError("only `batches` and `loss` may be given by position; call consolidate(batches, loss)")
        if not self._attachments:
            raise RuntimeError("consolidate() needs an optimizer to bound; call attach(optimizer) first")
        if self._loaded:
            self._check_loaded()
        self._flush()
        self._freeze.hook(self._inner)
        ranks, layers = Ranks(self.process_group, self.sync), self._find_layers()
        generator, evaluate = self._generator.clone_state(), make_objective(loss, objective)
        with torch.random.fork_rng(devices=[]), ranks.fail_together():
            found, count = capture_task(self._inner, layers, batches, evaluate, self.examples, generator, ranks)
        is_new = self._before is None
        before, memory = (self.memory if is_new else self._before) or {}, dict(self.memory)
        with self._computing():
            for name, inputs in found.items():
                past, current = before.get(name), self.memory.get(name)
                if current is not None and current.tasks == (0 if past is None else past.tasks):
                    current = None  # not of this task
                own = remember_task(layers[name], past, current, inputs, self.energy)
                if ranks.size > 1:  # others may round differently
                    own = ranks.broadcast(own.to(torch.device("cpu"))).to(own.anchor.device)
                memory[name] = own
        self._set_memory(memory, layers)
        self._generator, self._before = generator, before
        self.tasks += is_new
        self._freeze.active = True
        self._was_warned = self._was_warned or warn_of_unbounded(self._inner, layers, memory, self._trained)
        self._trained = set()
        return count

    def _find_layers(self) -> dict[str, BoundedLayer]:
        """Return the layers of the model that can be bounded, and those that have a memory."""
        return find_layers(self._inner, {name: own.anchor.shape[2] for name, own in self.memory.items()})

    def _set_memory(
        self,
        memory: dict[str, LayerMemory],
        layers: Mapping[str, BoundedLayer],
        mixed: Collection[str] = (),
        acted: Mapping[str, int] | None = None,
    ) -> None:
        tolerances = {name: self._tolerance_of(name) for name in memory}
        acted = self._projection.acted_by_name if acted is None else acted
        self._projection = Projection(layers, memory, tolerances, acted, mixed)
        self.memory, self._layers = memory, {name: layers[name] for name in memory}

    # -- Growing, watching, saving ---------------------------------------------------------------------

    def rebind(self, model: nn.Module | None = None) -> list[str]:
        """Follow layers that were replaced by larger ones; return their names.

        A layer is found by its name. Its first rows must be those of before; the new ones are free. The optimizer must
        know the new parameters.

        Args:
            model: the model that the bound was made with, which is the default.
        """
        if model is not None and unwrap(model) is not self._inner:
            raise ValueError("`model` must be the model that the bound was made with; make a new bound for another")
        layers, memory = self._find_layers(), dict(self.memory)
        changed = [name for name, layer in self._layers.items() if not layer.is_part_of(self._inner)]
        optimizers = [own.optimizer for own in self._attachments if own.optimizer is not None]
        members = {parameter for optimizer in optimizers for parameter in list_parameters(optimizer)}
        for name in changed:
            if name not in layers:
                raise ValueError(f"the model must still have layer {name!r} to rebind it")
            memory[name] = grow_memory(memory[name], layers[name])
            if optimizers and not members.issuperset(layers[name].parameters):
                raise ValueError(f"`optimizer` must optimize the new parameters, but not those of {name!r}")
        for optimizer in optimizers:
            drop_stale_state(optimizer)
        self._freeze.hook(self._inner)
        self._set_memory(memory, layers, self._projection.mixed_names)
        self._loaded.update(layers[name].module for name in changed)  # the old rows must be those of before
        return changed

    def telemetry(self) -> dict[str, float]:
        """Return numbers to watch a run by; reading them waits for the device.

        For each layer, ``layers/NAME/drift`` is its drift since the last consolidation and ``layers/NAME/allowed`` its
        limit, both relative to its outputs; ``layers/NAME/acted`` counts projections and ``layers/NAME/clipped`` steps
        with clipped gradients. ``drift`` is the largest drift as a share of its limit, ``acted`` and ``clipped`` are
        sums, ``tasks`` and ``memory_bytes`` describe the memory.
        """
        values = {"tasks": float(self.tasks), "memory_bytes": float(self.memory_bytes)}
        with self._computing():
            measured = self._projection.measure()
        self._check_finite(measured + self._projection.largest)
        # Each drift as a share of its limit.
        shares = (measured.clamp_min(0) / self._projection.allowed).sqrt().tolist()
        acted, counts = self._projection.acted_by_name, {} if self._clip is None else self._clip.counts
        for name, share in zip(self._projection.names, shares, strict=True):
            allowed = self._tolerance_of(name) / self.memory[name].tasks ** 0.5
            clipped = counts.get(self._layers[name].weight, 0)
            of_layer = {"drift": share * allowed, "allowed": allowed, "acted": acted[name], "clipped": clipped}
            values |= {f"layers/{name}/{key}": float(value) for key, value in of_layer.items()}
            values["drift"] = max(values.get("drift", 0.0), share)
        return {**values, "acted": float(sum(acted.values())), "clipped": float(sum(counts.values()))}

    @property
    def memory_bytes(self) -> int:
        """Bytes of the memory, the copy of the weights included."""
        return sum(memory.bytes for memory in self.memory.values())

    def state_dict(self) -> dict[str, Any]:
        """Return the memory in plain containers and tensors. It is also part of the optimizer's ``state_dict()``."""
        if not self._is_pending or not self._is_dirty:
            self._flush()
        before = self._before
        return {
            "class": "DriftBound",
            "tasks": self.tasks,
            "layers": {name: own.state_dict() for name, own in self.memory.items()},
            "before": None if before is None else {name: own.state_dict() for name, own in before.items()},
            "acted": self._projection.acted_by_name,
            "mixed": self._projection.mixed_names,
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken. Load the weights too, before or after; the next step checks them."""
        self.adopt_state(self.parse_state(state_dict))

    def parse_state(self, state: Any) -> Any:
        """Return a state, checked; raise a RuntimeError if it is not a bound's or belongs to another model."""
        if not isinstance(state, dict) or state.get("class") != "DriftBound":
            got = state.get("class", "another object") if isinstance(state, dict) else type(state).__name__
            raise RuntimeError(f"`state_dict` must come from a DriftBound, got the state of {got}")
        layers = find_layers(self._inner, {name: saved["anchor"].shape[2] for name, saved in state["layers"].items()})
        before = None if state["before"] is None else read_memory(state["before"], layers)
        return state, layers, read_memory(state["layers"], layers), before

    def adopt_state(self, parsed: Any) -> None:
        """Continue from a checked state."""
        state, layers, memory, self._before = parsed
        self._set_memory(memory, layers, state["mixed"], state["acted"])
        self._is_dirty, self._steps = False, 0
        self.tasks = state["tasks"]
        self._generator.set_state(state["generator"].cpu())
        self._freeze.active = self.tasks > 0
        self._loaded.update(layer.module for layer in self._layers.values())

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy has no optimizer yet: attach() it.
        self._flush()
        options = {name: getattr(self, name) for name in (*DEFAULTS, "process_group", "sync")}
        return _copy, (self.model, options, self.state_dict())

    def __repr__(self) -> str:
        changed = [f"{name}={own!r}" for name, value in DEFAULTS.items() if (own := getattr(self, name)) != value]
        return f"DriftBound({', '.join([*changed, f'{self.tasks} tasks'])})"


def _copy(model: nn.Module, options: dict[str, Any], state_dict: dict[str, Any]) -> DriftBound:
    bound = DriftBound(model, **options)
    bound.load_state_dict(state_dict)
    bound._loaded = set()  # the weights are copies, too
    return bound
