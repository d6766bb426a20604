"""The cases to measure: models, optimizers, ways to store directions, and groups of cases that take turns."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from sfao.lab.models import MODELS, build_model
from sfao.layers import layer_groups
from sfao.memory.directions import make_parts

#: Decisions that the gate is made to take: always the same, or about half projections, a quarter of each of the others.
DECISIONS = ("project", "accept", "discard", "mix")
#: The directions at which samples and decisions are varied, and at which models are compared.
USUAL_DIRECTIONS = 200


@dataclass(frozen=True)
class Subject:
    """A model that is measured, and the shape of its input."""

    builder: str
    input_shape: tuple[int, ...]
    sizes: dict[str, Any] = field(default_factory=dict)
    classes: int = 10

    @property
    def has_images(self) -> bool:
        """Tell whether the model convolves, so that the place of the channels matters."""
        return any(isinstance(module, nn.Conv2d) for module in self.outline().modules())

    def outline(self) -> nn.Module:
        """Return the model without its weights: layers and shapes, at no cost."""
        with torch.device("meta"):
            return MODELS[self.builder](self.input_shape, self.classes, **self.sizes)

    def build(self) -> nn.Module:
        return build_model(self.builder, self.input_shape, self.classes, seed=0, **self.sizes)


SUBJECTS = {
    "mlp": Subject("mlp", (1, 28, 28)),
    "cnn": Subject("cnn", (3, 32, 32)),
    "wrn-28-10": Subject("wrn-28-10", (3, 32, 32)),
}
#: The MLP in other widths: cost against parameters where all else is the same.
WIDTHS = {f"mlp-{width}": Subject("mlp", (1, 28, 28), {"hidden": width}) for width in (64, 1024)}


@dataclass(frozen=True)
class StorageChoice:
    """The options of the gate that say how directions are stored."""

    kind: str = "dense"
    rank: int = 1
    dtype: str = "float32"

    @property
    def options(self) -> dict[str, Any]:
        return {"storage": self.kind, "rank": self.rank, "memory_dtype": self.dtype}

    @property
    def has_rank(self) -> bool:
        return self.kind != "dense"

    def __str__(self) -> str:
        return f"{self.kind}{f' rank {self.rank}' if self.has_rank else ''}, {self.dtype}"


@dataclass(frozen=True)
class Case:
    """One thing to time: DriftBound, SFAO with a storage of directions, the released code's loop, or SGD."""

    model: str
    directions: int = 0
    storage: StorageChoice | None = None
    #: Directions compared with at a step; None for all.
    samples: int | None = None
    decisions: str = "project"
    #: True for DriftBound behind SGD.
    is_bound: bool = False

    @property
    def name(self) -> str:
        if self.is_bound:
            return "DriftBound"
        if self.storage is not None:
            return f"SFAO {self.storage}"
        return "released-code loop" if self.directions else "SGD"

    def __str__(self) -> str:
        held = f", {self.directions} directions" if self.directions else ""
        return f"{self.model}, {self.name}{held}"


@dataclass(frozen=True)
class Group:
    """Cases of one model that take turns; the first is SGD."""

    title: str
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class Sweep:
    """The settings to vary. Directions, samples and decisions are varied one at a time, around the usual ones."""

    models: tuple[str, ...]
    directions: tuple[int, ...] = (10, 50, 200, 1000)
    samples: tuple[int | None, ...] = (10, 1, None)
    storages: tuple[StorageChoice, ...] = (StorageChoice("dense"), StorageChoice("factored"))
    decisions: tuple[str, ...] = DECISIONS
    widths: bool = True
    #: Whether the released code's loop is measured too.
    released: bool = True
    #: Cases that would hold more are left out.
    most_bytes: int = 10**9

    @property
    def usual_directions(self) -> int:
        return USUAL_DIRECTIONS if USUAL_DIRECTIONS in self.directions else self.directions[-1]


def find_subject(model: str) -> Subject:
    return {**SUBJECTS, **WIDTHS}[model]


def combine_storages(kinds: Sequence[str], ranks: Sequence[int], dtypes: Sequence[str]) -> tuple[StorageChoice, ...]:
    """Return every way to store directions that these allow; dense rows have no rank."""
    made = [
        StorageChoice(kind, rank, dtype)
        for kind in kinds
        for rank in (ranks if StorageChoice(kind).has_rank else (1,))
        for dtype in dtypes
    ]
    return tuple(dict.fromkeys(made))


def plan_groups(sweep: Sweep) -> tuple[list[Group], list[str]]:
    """Return the groups to measure, and in words the cases left out because they would hold too much."""
    groups, left_out = [], []
    for model in sweep.models:
        for group in _groups(model, sweep):
            sizes = {case: case_bytes(case) for case in group.cases}
            fitting = tuple(case for case in group.cases if sizes[case] <= sweep.most_bytes)
            left_out += [f"{case}: {sizes[case] / 1e9:.1f} GB" for case in group.cases if case not in fitting]
            if len(fitting) > 1:
                groups.append(replace(group, cases=fitting))
    return groups, list(dict.fromkeys(left_out))


def case_bytes(case: Case) -> int:
    """Return the bytes of the directions of a case."""
    model = find_subject(case.model).outline()
    if case.storage is None:
        return case.directions * sum(parameter.nbytes for parameter in model.parameters())
    layers = [[parameter.shape for parameter in group["params"]] for group in layer_groups(model)]
    parts = [part for shapes in layers for part in make_parts(shapes, case.storage.options, torch.device("meta"))]
    return case.directions * sum(part.bytes_per_direction for part in parts)


def _groups(model: str, sweep: Sweep) -> list[Group]:
    models = [model, *(WIDTHS if sweep.widths and model == "mlp" else ())]
    bounds = [Group(f"{one}, DriftBound", (Case(one), Case(one, is_bound=True))) for one in models]
    usual, samples, decisions = sweep.usual_directions, sweep.samples[0], sweep.decisions[0]
    groups = [_group(model, f"{count} directions", sweep, count, samples, decisions) for count in sweep.directions]
    for other in sweep.samples[1:]:
        said = "all directions sampled" if other is None else f"{other} sampled"
        groups.append(_group(model, said, sweep, usual, other, decisions, released=False))
    for kind in sweep.decisions[1:]:
        groups.append(_group(model, kind, sweep, usual, samples, kind, released=False))
    for width in models[1:]:
        groups.append(_group(width, f"{usual} directions", sweep, usual, samples, decisions))
    return bounds + groups


def _group(
    model: str,
    title: str,
    sweep: Sweep,
    directions: int,
    samples: int | None,
    decisions: str,
    released: bool = True,
) -> Group:
    cases = [Case(model)]
    if released and sweep.released and decisions == "project":
        cases.append(Case(model, directions))
    cases += [Case(model, directions, storage, samples, decisions) for storage in sweep.storages]
    return Group(f"{model}, {title}", tuple(cases))
