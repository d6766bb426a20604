"""The layers of a model behind a gate: gating, remembering, consolidating."""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from sfao.checks import check_choice, check_seed
from sfao.gating.budget import MemoryPlan, format_bytes
from sfao.gating.decision import Decision
from sfao.gating.options import DEFAULTS, check_options
from sfao.optim import consolidation
from sfao.optim.depositing import harvest_into
from sfao.optim.device_path import DevicePath, is_capturing, obstacle
from sfao.optim.gate_state import ReadState, layer_state, read_state
from sfao.optim.gradients import NonFiniteGradient
from sfao.optim.host_path import gate_on_host
from sfao.optim.layers import Found, Layer
from sfao.optim.planning import bytes_at_capacity
from sfao.optim.precision import exact_products
from sfao.optim.seen import Seen
from sfao.optim.units import units_of

GRANULARITIES = ("layer", "global")
OPTION_NAMES = tuple(DEFAULTS)


class GatedLayers:
    """What :class:`sfao.Gate` and :class:`sfao.SFAO` have in common: layers with memories, and what is done to them."""

    def __init__(self, granularity: str, seed: int, memory_plan: MemoryPlan | None) -> None:
        check_choice("granularity", granularity, GRANULARITIES)
        check_seed(seed)
        self.granularity = granularity
        self.seed = seed
        self.memory_plan = memory_plan
        self.task = 0
        self.layers: list[Layer] = []
        self.param_groups: list[dict[str, Any]] = []
        #: What the last step saw; None while only the device knows.
        self._seen: Seen | None = Seen({}, {}, {})
        self._path: DevicePath | None = None
        #: Paths of before that graphs of somebody else's may still run.
        self._retired: list[DevicePath] = []
        self._said: set[str] = set()

    # -- Layers ----------------------------------------------------------------------------------------

    def check_group(self, group: dict[str, Any]) -> None:
        """Raise a ValueError if the gate could not take this group in."""
        check_options(group)
        if any(group["name"] == known["name"] for known in self.param_groups):
            raise ValueError(f"`name` must be unique among param groups, got {group['name']!r} twice")
        known = {parameter for other in self.param_groups for parameter in other["params"]}
        for parameter in group["params"]:
            if parameter in known:
                raise ValueError(f"a parameter must be in one group once, got one of {group['name']!r} again")
            known.add(parameter)
            if not parameter.is_leaf:
                raise ValueError(f"parameters must be leaf tensors, got one in {group['name']!r} that is not")
        if self.granularity == "global" and self.param_groups:
            self._check_same_options(group)
        if self.memory_plan is not None:
            self._check_budget(group, self.memory_plan)

    def _check_budget(self, group: dict[str, Any], plan: MemoryPlan) -> None:
        needed = sum(bytes_at_capacity(known) for known in (*self.param_groups, group))
        if needed > plan.budget:
            raise ValueError(
                f"`memory_budget` of {format_bytes(plan.budget)} must hold all groups, "
                f"but with {group['name']!r} they need {format_bytes(needed)}"
            )

    def add_group(self, group: dict[str, Any]) -> None:
        """Take in a named param group with all options set."""
        self.check_group(group)
        if self.granularity == "layer" or not self.layers:
            generator = torch.Generator().manual_seed(self.seed + 7919 * len(self.layers))
            name = "model" if self.granularity == "global" else group["name"]
            self.layers.append(Layer(name, group, generator))
        self.layers[-1].add_parameters(list(group["params"]), group)
        self.param_groups.append(group)

    # -- Gating ----------------------------------------------------------------------------------------

    # A compiled step() compiles the descent around the gate: tracing the gate itself takes minutes and gains nothing.
    # What torch's own optimizers use: torch.compiler.disable would import the compiler together with this module.
    @_disable_dynamo
    def apply(self) -> Tensor | None:
        """Turn the gradient g of every layer into its update u, in place, as the gate decides.

        On a device nothing waits for what is decided. A gradient that is not finite then makes all updates zero,
        and the flag returned, on the device, false; it is raised when somebody looks, or some steps later.
        """
        with self._exact():
            self._check_options()
            if is_capturing():
                self._check_capture()
            elif self._path is not None:
                self._raise_for(self._path.look())
            if self._path is None or not self._path.serves():
                found = [(layer, layer.gradient()) for layer in self.layers if layer.has_gradient]
                self._path = self._path_for(found)
                if self._path is None:
                    self._seen = gate_on_host(found)
                    return None
            self._path.step()
            self._seen = None
            return self._path.gate.sound

    def _check_capture(self) -> None:
        if self._path is None or not self._path.serves_a_capture():
            raise RuntimeError(
                "a step that is captured in a CUDA graph must be like the one before, on the GPU: "
                "take a few steps first, and capture again whenever the memory or an option has changed"
            )

    def _path_for(self, found: Found) -> DevicePath | None:
        """How these layers are gated on their device; None where they must be, or may as well be, on the host."""
        self.settle()
        why = obstacle(found)
        if why is not None:
            if why and why not in self._said:
                self._said.add(why)
                warnings.warn(f"gated on the host, which is slower: {why}", RuntimeWarning, stacklevel=5)
            return None
        for layer, gradient in found:
            if len(layer.memory) and gradient.present:
                layer.follow(gradient)
        return DevicePath(self.layers, found)

    def settle(self) -> None:
        """Fetch what only the device knows, and let go of what is held there beside the memories."""
        if self._path is not None:
            path, self._path = self._path, None
            if self._seen is None or path.captured:
                self._seen = path.seen()
            path.hand_over_counts()
            self._retire(path)
            self._raise_for(path.broken())
        self._raise_for_stale()

    def _retire(self, path: DevicePath) -> None:
        """Let a graph of somebody else's that runs this path make steps that change nothing from now on."""
        if path.captured:
            path.gate.retire()
            self._retired.append(path)

    def _raise_for_stale(self) -> None:
        """Look whether a graph was replayed that holds a gate of before."""
        stale = [path.gate.stale for path in self._retired if bool(path.gate.stale)]
        for flag in stale:
            flag.zero_()
        if stale:
            raise RuntimeError(
                "a CUDA graph must be captured again when the memory has changed, but one from before was replayed; "
                "those steps changed nothing"
            )

    def _raise_for(self, names: list[str]) -> None:
        if names:
            if self._path is not None:
                self._path.mend()
            raise NonFiniteGradient(
                f"the gradient of layer {names[0]!r} must be finite, but was not; that step changed nothing"
            )

    @contextmanager
    def _exact(self) -> Iterator[None]:
        """Out of autograd, and out of whatever would round the gate's own products: autocast, TF32."""
        device = self.param_groups[0]["params"][0].device.type
        with ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
            stack.enter_context(exact_products())
            yield

    def _current_gradients(self) -> Found:
        """The gradients of the layers that have any; all is checked before anything is changed."""
        self._check_options()
        found = [(layer, layer.gradient()) for layer in self.layers if layer.has_gradient]
        for layer, gradient in found:
            layer.check_finite(gradient)
        return found

    def _check_options(self) -> None:
        """Raise a ValueError if an option does not hold any more."""
        for layer in self.layers:
            layer.check_options()
        if self.granularity == "global":
            for group in self.param_groups[1:]:
                self._check_same_options(group)

    def _check_same_options(self, group: dict[str, Any]) -> None:
        first = self.param_groups[0]
        for name in OPTION_NAMES:
            if group[name] != first[name]:
                raise ValueError(
                    f'`{name}` must be the same in all groups when granularity="global", '
                    f"got {first[name]!r} and {group[name]!r}"
                )

    # -- Storing ---------------------------------------------------------------------------------------

    def remember(self) -> int:
        """Store the directions of the gradients that backward() left; returns how many were stored."""
        self.settle()
        with self._exact():
            return sum(layer.remember(gradient, self.task) for layer, gradient in self._current_gradients())

    def consolidate(
        self,
        model: nn.Module,
        batches: Iterable[object],
        loss: consolidation.Loss | None = None,
        *,
        target: str = "loss",
        per: str | None = None,
        limit: int | None = None,
    ) -> int:
        """Store directions of a finished task and end it; returns how many of them are held.

        Which gradients the memory will hold is drawn first, and no others are taken.

        Args:
            batches: (inputs, targets) pairs of the task; of a sequence, only those that are used are looked at.
            loss: called as ``loss(model(inputs), targets)``; not needed for ``target="logit"``.
            target: store gradients of the ``"loss"``, or of the true class's ``"logit"``.
            per: one gradient a ``"batch"`` or an ``"example"``. By default, batches for the loss and examples
                for logits, whose gradients have rank 1 in a Linear layer.
            limit: how many gradients to take at most, drawn uniformly. By default every batch, and as many
                examples as the memory can hold.

        The model is in eval mode meanwhile and its gradients, statistics and parameters stay as they are.
        If anything fails, the memory too stays as it was.
        """
        consolidation.check_harvest(target, per, limit)
        per = consolidation.harvest_unit(target, per)
        if target == "loss" and loss is None:
            raise ValueError('`loss` must be given for target="loss", got None')
        objective = loss if target == "loss" and loss is not None else consolidation.true_logit

        capacity = max(layer.memory.capacity for layer in self.layers)
        self._check_options()
        self.settle()
        with self._restored_on_error():
            units = units_of(batches, per, limit, capacity, self.layers[0].memory.generator)
            stored = harvest_into(self.layers, self.task, model, objective, units, self._exact)
        self.end_task()
        return stored

    def end_task(self) -> None:
        """Mark a task boundary: directions stored from now on belong to the next task."""
        self.task += 1

    @contextmanager
    def _restored_on_error(self) -> Iterator[None]:
        with ExitStack() as stack:
            for layer in self.layers:
                stack.enter_context(layer.memory.restored_on_error())
            yield

    # -- Looking ---------------------------------------------------------------------------------------

    @property
    def last_decisions(self) -> dict[str, Decision]:
        """What the last step decided, {layer: decision}; a layer whose gradient was zero is not in it."""
        return self._look().decisions

    @property
    def last_cosines(self) -> dict[str, float]:
        """The largest sampled cosine of each layer at the last step, where there was something to compare with."""
        return self._look().cosines

    def _look(self) -> Seen:
        """What the last step saw; waits for the device if it is still there."""
        # Where a step was captured, a replay may have been the last one.
        if self._path is not None and (self._seen is None or self._path.captured):
            self._raise_for(self._path.broken())
            self._seen = self._path.seen()
        return self._seen or Seen({}, {}, {})

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Decisions so far: {layer: {accept, project, discard, zero}}."""
        if self._path is not None:
            self._path.hand_over_counts()
            self._raise_for(self._path.broken())
        self._raise_for_stale()
        return {layer.name: dict(layer.counts) for layer in self.layers}

    @property
    def memory_bytes(self) -> int:
        """Bytes of directions held now: what `memory_budget` limits and `state_dict` saves."""
        return sum(layer.memory.bytes for layer in self.layers)

    @property
    def workspace_bytes(self) -> int:
        """Bytes of the small matrices beside the directions (their Gram matrix and its factor, in float64)."""
        return sum(layer.memory.workspace_bytes for layer in self.layers)

    def risk(self) -> float:
        """The interference risk R(u; B) of the last gated update u: the most it points against a unit direction.

        With momentum the step taken is another: it averages the updates before. The update is read where step()
        leaves it, in `.grad`: call this after step() and before zero_grad().
        """
        self._look()
        with self._exact():
            risks = [
                layer.memory.risk(gradient.matrices()) * gradient.norm / gradient.working_norm
                for layer, gradient in self._updates("risk()")
                if len(layer.memory) and gradient.norm > 0
            ]
        return max([0.0, *risks])

    def kept(self) -> dict[str, float]:
        """How much of the length of each layer's gradient its last update kept: 1 accepted, 0 discarded.

        Like `risk`, to be called after step() and before zero_grad().
        """
        seen = self._look()
        with self._exact():
            updates = {layer.name: gradient.norm for layer, gradient in self._updates("kept()")}
        return {name: updates[name] / seen.norms[name] for name in seen.cosines if name in updates}

    def _updates(self, reader: str) -> Found:
        """What step() left in `.grad`."""
        found = [(layer, layer.gradient()) for layer in self.layers if layer.has_gradient]
        for layer, gradient in found:
            layer.check_finite(gradient)
        if not found:
            raise RuntimeError(f"{reader} reads the update that step() left in `.grad`; call it before zero_grad()")
        return found

    # -- State -----------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Memories, counts and generators, in plain containers and tensors."""
        counts = self.counts
        return {
            "task": self.task,
            "granularity": self.granularity,
            "layers": {layer.name: layer_state(layer, counts[layer.name]) for layer in self.layers},
        }

    def read_state(self, state: dict[str, Any]) -> ReadState:
        """The state, checked and read, and nothing changed; a RuntimeError if it is of another model or damaged."""
        return read_state(state, self.granularity, self.layers)

    def adopt(self, state: ReadState, groups: list[dict[str, Any]]) -> None:
        """Go on from a state that was read, with the options of these groups."""
        self.task = state.task
        self.param_groups = groups
        if self._path is not None:
            self._retire(self._path)
        self._seen, self._path = Seen({}, {}, {}), None
        self.memory_plan = None if self._outgrown(state) else self.memory_plan
        for layer, group, (memory, counts) in zip(self.layers, groups, state.layers, strict=False):
            layer.adopt(group, memory, counts)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or a pickle takes along: nothing that lives on a device."""
        seen, _ = self._look(), self.counts
        return {**self.__dict__, "_seen": seen, "_path": None, "_retired": []}

    def _outgrown(self, state: ReadState) -> bool:
        """Whether a loaded memory is not what this budget planned."""
        plan = self.memory_plan
        return plan is not None and any(memory.capacity != plan.capacity for memory, _ in state.layers)
