"""A training step of a case: model, optimizer with a full memory, and batches that are random."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import NormalDist

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from sfao.drift_bound import DriftBound
from sfao.lab.bench.cases import Case, StorageChoice, Subject, find_subject
from sfao.lab.bench.filling import fill_memory
from sfao.lab.bench.measuring import Step
from sfao.lab.bench.released import ReleasedLoop
from sfao.layers import layer_groups
from sfao.optimizer import SFAO

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
#: So small that every projection of a bound acts.
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Setting:
    """The way a model is trained while it is measured."""

    device: torch.device
    batch_size: int = 32
    channels_last: bool = False
    autocast: str | None = None
    #: The parts that are compiled: the model, the optimizer's step.
    compile: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = [str(self.device), f"batch {self.batch_size}"]
        said += ["channels last"] * self.channels_last
        said += [f"{self.autocast} autocast"] if self.autocast else []
        said += [f"{' and '.join(self.compile)} compiled"] if self.compile else []
        if self.device.type == "cuda":
            said.append(f"TF32 {'on' if torch.backends.cudnn.allow_tf32 else 'off'} in convolutions")
        return ", ".join(said)


class Training:
    """The model and the optimizer of a case; `step` is timed."""

    def __init__(self, case: Case, setting: Setting) -> None:
        self.model = _place_model(find_subject(case.model), setting)
        self.optimizer = _optimizer(case, self.model)
        self.bound: DriftBound | None = None
        if case.is_bound:
            self.bound = full_bound(self.model, self.optimizer, find_subject(case.model), setting)
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
        return getattr(self.bound or self.optimizer, "memory_bytes", 0)

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
    model: nn.Module, directions: int, storage: StorageChoice, samples: int | None, decisions: str
) -> SFAO:
    """Return an optimizer whose memory is full of random directions, and which decides as given."""
    groups = layer_groups(model)
    sampled = directions if samples is None else samples
    for group in groups:
        size = sum(parameter.numel() for parameter in group["params"])
        group.update(THRESHOLDS.get(decisions) or mixing_thresholds(size, min(sampled, directions)))
    optimizer = SFAO(groups, lr=1e-3, momentum=0.0, capacity=directions, samples=sampled, **storage.options)
    fill_memory(optimizer, directions)
    return optimizer


def full_bound(model: nn.Module, optimizer: torch.optim.Optimizer, of: Subject, setting: Setting) -> DriftBound:
    """Return a bound on the model with the memory of one task of random batches."""
    bound = DriftBound(model, TOLERANCE).attach(optimizer)
    bound.consolidate(list(islice(random_batches(of, setting), BATCHES)), cross_entropy)
    return bound


def mixing_thresholds(size: int, samples: int) -> dict[str, float]:
    """Return thresholds with about half of the largest cosines between them, and a quarter on either side.

    The cosine of a gradient of `size` entries with a random direction is close to normal, of variance 1 / size;
    that the largest of k is below a bound has the k-th power of the probability of one.
    """
    low, high = (NormalDist().inv_cdf(share ** (1 / samples)) / size**0.5 for share in (0.25, 0.75))
    return {"accept_above": min(high, 1.0), "discard_below": max(low, -1.0)}


def training_step(model: nn.Module, optimizer: torch.optim.Optimizer, of: Subject, setting: Setting) -> Step:
    batches = random_batches(of, setting)

    def step() -> None:
        optimizer.zero_grad()
        inputs, targets = next(batches)
        with precision(setting):
            loss = cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()

    return step


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
    return torch.autocast(setting.device.type, dtype=AUTOCAST[setting.autocast])


def _place_model(of: Subject, setting: Setting) -> nn.Module:
    model = of.build().to(setting.device)
    if setting.channels_last and of.has_images:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if "model" in setting.compile:
        model.compile()
    return model


def _optimizer(case: Case, model: nn.Module) -> torch.optim.Optimizer:
    if case.storage is not None:
        return full_optimizer(model, case.directions, case.storage, case.samples, case.decisions)
    if case.directions:
        return ReleasedLoop(model, case.directions)
    return torch.optim.SGD(model.parameters(), lr=1e-3)
