"""A training step of a case: model, optimizer with a full memory, and batches that are random."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import cycle
from statistics import NormalDist

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sfao.cost.cases import Case, Subject, find_subject
from sfao.cost.filling import fill_memory, fill_spaces
from sfao.cost.measuring import Step
from sfao.cost.released import ReleasedLoop
from sfao.gating.storage import Storage
from sfao.optim.layers import layer_groups
from sfao.optim.sfao import SFAO

Batch = tuple[Tensor, Tensor]

#: Different batches, so that gradients and with them decisions differ from step to step.
BATCHES = 8
THRESHOLDS = {
    "project": {"accept_above": 1.0, "discard_below": -1.0},
    "accept": {"accept_above": -1.0, "discard_below": -1.0},
    "discard": {"accept_above": 1.0, "discard_below": 1.0},
}
AUTOCAST = {"bfloat16": torch.bfloat16}
COMPILED = ("model", "step")
#: Steps before one is captured: they compile, and leave in memory what the graph will find there.
BEFORE_CAPTURE = 4


@dataclass(frozen=True)
class Setting:
    """The way a model is trained while it is measured."""

    device: torch.device
    batch_size: int = 32
    channels_last: bool = False
    autocast: str | None = None
    #: The parts that are compiled: the model, the optimizer's step.
    compile: tuple[str, ...] = ()
    #: Whether the whole step is captured as a CUDA graph and replayed.
    graph: bool = False

    def __str__(self) -> str:
        said = [str(self.device), f"batch {self.batch_size}"]
        said += ["channels last"] * self.channels_last
        said += [f"{self.autocast} autocast"] if self.autocast else []
        said += [f"{' and '.join(self.compile)} compiled"] if self.compile else []
        said += ["the whole step a CUDA graph"] * self.graph
        if self.device.type == "cuda":
            said.append(f"TF32 {'on' if torch.backends.cudnn.allow_tf32 else 'off'} in convolutions")
        return ", ".join(said)


class Training:
    """The model and the optimizer of a case; `step` is timed."""

    def __init__(self, case: Case, setting: Setting) -> None:
        self.model = _place_model(find_subject(case.model), setting)
        self.optimizer = _optimizer(case, self.model, setting.device)
        if "step" in setting.compile:
            self.optimizer.step = torch.compile(self.optimizer.step)  # type: ignore[method-assign, assignment]
        self.step = training_step(self.model, self.optimizer, find_subject(case.model), setting)
        if case.decisions == "mix":
            self._project_once()

    def _project_once(self) -> None:
        """Take a step that projects: what the first projection of a layer builds must not be timed."""
        groups = self.optimizer.param_groups
        mixing = [{name: group[name] for name in THRESHOLDS["project"]} for group in groups]
        for group in groups:
            group.update(THRESHOLDS["project"])
        self.step()
        for group, thresholds in zip(groups, mixing, strict=True):
            group.update(thresholds)

    @property
    def memory_bytes(self) -> int:
        return getattr(self.optimizer, "memory_bytes", 0)

    @property
    def workspace_bytes(self) -> int:
        return getattr(self.optimizer, "workspace_bytes", 0)

    @property
    def decision_counts(self) -> dict[str, int]:
        """{decision: count}, over all layers."""
        counts = self.optimizer.counts.values() if isinstance(self.optimizer, SFAO) else []
        names = ("accept", "project", "discard", "zero")
        return {name: total for name in names if (total := sum(of_layer[name] for of_layer in counts))}


def full_optimizer(
    model: nn.Module, directions: int, storage: Storage, samples: int | None, decisions: str, device: torch.device
) -> SFAO:
    """Return an optimizer whose memory is full of random directions, and which decides as given."""
    groups = layer_groups(model)
    sampled = directions if samples is None else samples
    for group in groups:
        size = sum(parameter.numel() for parameter in group["params"])
        group.update(THRESHOLDS.get(decisions) or mixing_thresholds(size, min(sampled, directions)))
    optimizer = SFAO(
        groups,
        lr=1e-3,
        capacity=directions,
        samples=sampled,
        **storage.options,
    )
    for number, layer in enumerate(optimizer.gate.layers):
        fill_memory(layer.memory, directions, device, seed=number)
    return optimizer


def full_subspace(model: nn.Module, axes: int, device: torch.device) -> SFAO:
    """Return an optimizer, of default options but for the axes, whose layers all soften their gradients."""
    optimizer = SFAO(layer_groups(model), lr=1e-3, axes=axes)
    for number, layer in enumerate(optimizer.gate.layers):
        fill_spaces(layer, axes, device, seed=number)
    return optimizer


def mixing_thresholds(size: int, samples: int) -> dict[str, float]:
    """Return thresholds with about half of the largest cosines between them, and a quarter on either side.

    The cosine of a gradient of `size` entries with a random direction is close to normal, of variance 1 / size;
    that the largest of k is below a bound has the k-th power of the probability of one.
    """
    low, high = (NormalDist().inv_cdf(share ** (1 / samples)) / size**0.5 for share in (0.25, 0.75))
    return {"accept_above": min(high, 1.0), "discard_below": max(low, -1.0)}


def training_step(model: nn.Module, optimizer: torch.optim.Optimizer, of: Subject, setting: Setting) -> Step:
    batches = random_batches(of, setting)

    def train(inputs: Tensor, targets: Tensor) -> None:
        with precision(setting):
            loss = cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()

    def step() -> None:
        optimizer.zero_grad()
        train(*next(batches))

    return GraphedStep(train, optimizer, batches) if setting.graph else step


class GraphedStep:
    """A training step that is captured as a CUDA graph after a few calls, and replayed from then on."""

    def __init__(
        self, train: Callable[[Tensor, Tensor], None], optimizer: torch.optim.Optimizer, batches: Iterator[Batch]
    ) -> None:
        self._train, self._optimizer, self._batches = train, optimizer, batches
        self._inputs, self._targets = (part.clone() for part in next(batches))
        self._stream = torch.cuda.Stream()
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        inputs, targets = next(self._batches)
        self._inputs.copy_(inputs)
        self._targets.copy_(targets)
        if self._graph is None and self._calls == BEFORE_CAPTURE:
            self._graph = self._capture()
        if self._graph is not None:
            self._graph.replay()
        else:
            self._step_beside()
        self._calls += 1

    def _step_beside(self) -> None:
        """Take a step on a stream of its own, as capturing will do."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._optimizer.zero_grad()
            self._train(self._inputs, self._targets)
        torch.cuda.current_stream().wait_stream(self._stream)

    def _capture(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        self._optimizer.zero_grad()
        with torch.cuda.graph(graph):
            self._train(self._inputs, self._targets)
        return graph


def random_batches(of: Subject, setting: Setting) -> Iterator[Batch]:
    generator = torch.Generator().manual_seed(0)
    batches = []
    for _ in range(BATCHES):
        inputs = torch.randn(setting.batch_size, *of.input_shape, generator=generator).to(setting.device)
        targets = torch.randint(0, of.classes, (setting.batch_size,), generator=generator).to(setting.device)
        if setting.channels_last and of.has_images:
            inputs = inputs.contiguous(memory_format=torch.channels_last)
        batches.append((inputs, targets))
    return cycle(batches)


def precision(setting: Setting) -> AbstractContextManager[object]:
    if setting.autocast is None:
        return nullcontext()
    # What is cached outside of a graph must not be used inside of it.
    return torch.autocast(setting.device.type, dtype=AUTOCAST[setting.autocast], cache_enabled=not setting.graph)


def _place_model(of: Subject, setting: Setting) -> nn.Module:
    model = of.build().to(setting.device)
    if setting.channels_last and of.has_images:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if "model" in setting.compile:
        model.compile()
    return model


def _optimizer(case: Case, model: nn.Module, device: torch.device) -> torch.optim.Optimizer:
    if case.axes:
        return full_subspace(model, case.axes, device)
    if case.storage is not None:
        return full_optimizer(model, case.directions, case.storage, case.samples, case.decisions, device)
    if case.directions:
        return ReleasedLoop(model, case.directions)
    return torch.optim.SGD(model.parameters(), lr=1e-3)
