"""Cases of the paper's optimizer, as data: one for each option, and some combinations."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """One training run over three tasks.

    Args:
        options: of the optimizer, or of the gate if it is attached to another optimizer.
        groups: options of single layers, by name.
        attach: name and arguments of the torch optimizer behind the gate; None for `sfao.SFAO`.
        model: a name in `record_paper_steps.MODELS`.
        scale: factor of the loss.
        consolidate: arguments of `consolidate`.
        is_generator: `consolidate` gets a generator, not a list.
        has_objective: an objective replaces the loss in `consolidate`.
        remember_every: call `remember` after every so many steps, and `end_task` in place of `consolidate`.
        reload_after: steps after which model and optimizer are rebuilt from their `state_dict`.
        schedule: options to set in all param groups, by step.
        freeze: layers without gradients, by task.
        add_heads: start with the first head; add the others with `add_param_group`.
        plain_parameters: pass `model.parameters()`, so that every parameter is a layer.
        channels_last: weights and gradients of convolutions in this memory format.
        closure: call `step` with a closure.
    """

    options: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    attach: tuple[str, dict[str, Any]] | None = None
    model: str = "mlp"
    dtype: str = "float32"
    scale: float = 1.0
    consolidate: dict[str, Any] = field(default_factory=dict)
    is_generator: bool = False
    has_objective: bool = False
    remember_every: int = 0
    reload_after: tuple[int, ...] = ()
    schedule: dict[int, dict[str, Any]] = field(default_factory=dict)
    freeze: dict[int, str] = field(default_factory=dict)
    add_heads: bool = False
    plain_parameters: bool = False
    channels_last: bool = False
    closure: bool = False


def sfao_case(options: dict[str, Any], **others: Any) -> Case:
    """Return a case of `sfao.SFAO`; learning rate and momentum are always explicit."""
    return Case({"lr": 0.1, "momentum": 0.0, **options}, **others)


#: Thresholds at which all three decisions occur.
MIXED = {"accept_above": 0.5, "discard_below": 0.2, "samples": 3}
PROJECT = {"accept_above": 1.0, "discard_below": -1.0}
#: A full memory, so that eviction and sampling draw random numbers.
FULL = {**MIXED, "capacity": 4, "samples": 2}
MOMENTUM = {**MIXED, "momentum": 0.9}
FACTORED = {**PROJECT, "storage": "factored"}

CASES: dict[str, Case] = {
    "default": sfao_case({}),
    # Decisions.
    "mixed": sfao_case(MIXED),
    "accept_above -1": sfao_case({"accept_above": -1.0}),
    "discard_below 1": sfao_case({"discard_below": 1.0}),
    "schedule": sfao_case(MIXED, schedule={22: {"accept_above": 0.8}, 40: {"discard_below": -0.5, "samples": 5}}),
    "samples all": sfao_case({**MIXED, "samples": 200}),
    "absolute": sfao_case({**MIXED, "cosine": "absolute"}),
    "strict": sfao_case({**MIXED, "strict": True}),
    "seed": sfao_case({**FULL, "seed": 7}),
    # Projections.
    "span": sfao_case({**PROJECT, "capacity": 8}),
    "sequential": sfao_case({**PROJECT, "projection": "sequential"}),
    "cone": sfao_case({**PROJECT, "projection": "cone"}),
    "cone mixed": sfao_case({**FULL, "projection": "cone"}),
    # Memory.
    "balanced": sfao_case({**FULL, "eviction": "balanced"}),
    "fifo": sfao_case({**FULL, "eviction": "fifo"}),
    "reservoir": sfao_case({**FULL, "eviction": "reservoir"}),
    "admit_below 0.5": sfao_case({**MIXED, "admit_below": 0.5}),
    "min_norm": sfao_case({**MIXED, "min_norm": 0.25}),
    "rank 1": sfao_case({**MIXED, "storage": "factored", "rank": 1}),
    "rank 2": sfao_case({**MIXED, "storage": "factored", "rank": 2}),
    "rank 1 fifo bfloat16": sfao_case({**FULL, "storage": "factored", "eviction": "fifo", "memory_dtype": "bfloat16"}),
    "rank 2 cone": sfao_case({**FACTORED, "rank": 2, "projection": "cone", "capacity": 5}),
    "bfloat16": sfao_case({**MIXED, "memory_dtype": "bfloat16"}),
    # Layers.
    "global": sfao_case({**MIXED, "granularity": "global"}),
    "global rank 1": sfao_case({**MIXED, "granularity": "global", "storage": "factored"}),
    "global full": sfao_case({**FULL, "granularity": "global", "strict": True}),
    "plain parameters": sfao_case(MIXED, plain_parameters=True),
    "groups": sfao_case(
        MIXED,
        groups={
            "0": {"projection": "cone", "capacity": 3, "accept_above": 0.9, "lr": 0.05, "momentum": 0.9},
            "2": {"storage": "factored", "samples": 1, "weight_decay": 0.1, "eviction": "fifo", "cosine": "absolute"},
            "4": {"strict": True, "memory_dtype": "bfloat16", "min_norm": 0.2, "admit_below": 0.9, "maximize": True},
        },
    ),
    # Descent.
    "ema": sfao_case(MOMENTUM),
    "dampening": sfao_case({**MOMENTUM, "momentum_form": "heavy_ball", "dampening": 0.3}),
    "nesterov": sfao_case({**MOMENTUM, "momentum_form": "heavy_ball", "nesterov": True}),
    "decoupled decay": sfao_case({**MOMENTUM, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    "coupled decay": sfao_case({**MOMENTUM, "weight_decay": 0.1, "decoupled_weight_decay": False}),
    "maximize decay": sfao_case({**MIXED, "maximize": True, "lr": 0.02, "weight_decay": 0.1}),
    "closure": sfao_case(MOMENTUM, closure=True),
    # What is stored.
    "loss of examples": sfao_case({**MIXED, "capacity": 12}, consolidate={"target": "loss", "per": "example"}),
    "logits of batches": sfao_case(MIXED, consolidate={"target": "logit", "per": "batch"}),
    "logits of examples rank 1": sfao_case(
        {**MIXED, "capacity": 12, "storage": "factored"}, consolidate={"target": "logit", "per": "example"}
    ),
    "limit of a list": sfao_case(MIXED, consolidate={"limit": 3}),
    "limit of a generator": sfao_case(MIXED, is_generator=True, consolidate={"limit": 3}),
    "limit of generated examples": sfao_case(
        MIXED, is_generator=True, consolidate={"target": "loss", "per": "example", "limit": 4}
    ),
    "admitted examples": sfao_case({**FULL, "admit_below": 0.6}, consolidate={"target": "logit"}),
    "objective": sfao_case(MIXED, has_objective=True),
    "objective of each example": sfao_case(MIXED, has_objective=True, consolidate={"per": "example", "limit": 5}),
    "remember": sfao_case(MOMENTUM, remember_every=3),
    "remember full": sfao_case({**FULL, "admit_below": 0.9, "eviction": "reservoir"}, remember_every=2),
    # Models.
    "conv": sfao_case(MIXED, model="conv"),
    "conv rank 2": sfao_case({**FULL, "storage": "factored", "rank": 2}, model="conv"),
    "conv channels_last": sfao_case(MOMENTUM, model="conv", channels_last=True),
    "conv channels_last rank 1": sfao_case({**FACTORED, "capacity": 5}, model="conv", channels_last=True),
    "gru": sfao_case({**MOMENTUM, "storage": "factored"}, model="gru"),
    "heads": sfao_case(MOMENTUM, model="heads"),
    "heads global sequential": sfao_case(
        {**FACTORED, "granularity": "global", "projection": "sequential"}, model="heads"
    ),
    "heads global cone": sfao_case({**PROJECT, "granularity": "global", "projection": "cone"}, model="heads"),
    "added heads": sfao_case(MOMENTUM, model="heads", add_heads=True),
    "frozen layer": sfao_case(MOMENTUM, freeze={1: "2"}),
    "frozen layer global": sfao_case({**FULL, "granularity": "global"}, freeze={0: "4", 2: "0"}),
    "zero gradients": sfao_case({**MOMENTUM, "weight_decay": 0.1}, model="dead"),
    # Numbers.
    "float64 model": sfao_case(MOMENTUM, dtype="float64"),
    "bfloat16 model": sfao_case(MOMENTUM, dtype="bfloat16"),
    "bfloat16 model project": sfao_case(FACTORED, dtype="bfloat16"),
    "float16 model": sfao_case(FULL, dtype="float16"),
    "gradients 1e15": sfao_case({**MIXED, "lr": 1e-16}, scale=1e15),
    "gradients 1e-20": sfao_case({**MIXED, "lr": 1e19}, scale=1e-20),
    "gradients 1e-41": sfao_case({**PROJECT, "projection": "cone", "lr": 1e37}, scale=1e-41),
    # In front of other optimizers.
    "AdamW": Case(MIXED, attach=("AdamW", {"lr": 0.01})),
    "AdamW global": Case({**FULL, "granularity": "global"}, attach=("AdamW", {"lr": 0.01, "foreach": False})),
    "SGD": Case({**MIXED, "seed": 3}, attach=("SGD", {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01})),
    "SGD conv closure": Case(
        MIXED, model="conv", attach=("SGD", {"lr": 0.05, "nesterov": True, "momentum": 0.9}), closure=True
    ),
    # States.
    "reload": sfao_case({**FULL, "momentum": 0.9}, reload_after=(5, 25, 40)),
    "reload rank 1 bfloat16": sfao_case(
        {**FULL, "storage": "factored", "memory_dtype": "bfloat16", "eviction": "reservoir"}, reload_after=(17, 34)
    ),
    "reload conv channels_last": sfao_case(MOMENTUM, model="conv", channels_last=True, reload_after=(20, 42)),
    "reload heads global": sfao_case(
        {**FULL, "granularity": "global", "projection": "cone"}, model="heads", reload_after=(20, 45)
    ),
    "reload AdamW": Case(FULL, attach=("AdamW", {"lr": 0.01}), reload_after=(5, 25, 40)),
}
