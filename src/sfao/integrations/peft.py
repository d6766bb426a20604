"""peft: the layers of an adapter, and an optimizer for them with a Gate or DriftBound."""

from collections.abc import Mapping
from typing import Any

import torch
from torch.optim import Optimizer

from sfao.checks import explain_missing
from sfao.gate import Gate
from sfao.integrations.attached import Attached, attach, check_arguments
from sfao.layers import layer_groups

try:
    from peft import PeftModel
except ImportError as error:
    raise explain_missing(error, "peft", "sfao.integrations.peft", "peft") from None


def adapter_groups(model: PeftModel) -> list[dict[str, Any]]:
    """Return one named param group for each trainable layer of a peft model: its active adapters, nothing frozen."""
    if not isinstance(model, PeftModel):
        raise ValueError(f"`model` must be a peft model, got {type(model).__name__}; get_peft_model(...) makes one")
    groups = layer_groups(model)
    if not groups:
        raise ValueError(
            f"`model` must have an adapter that is trained, but {model.active_adapter!r} is frozen or merged; "
            "load it with is_trainable=True"
        )
    return groups


def create_sfao_optimizer(
    model: PeftModel,
    optimizer_cls: type[Optimizer] = torch.optim.AdamW,
    *,
    lr: float,
    kind: type[Attached] = Gate,
    attached: Attached | None = None,
    options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Optimizer:
    """Return an optimizer of the adapters of a peft model, with a Gate or DriftBound attached.

    :func:`sfao.integrations.attached.find_attached` returns that one.

    Args:
        model: as returned by `get_peft_model`.
        optimizer_cls, lr, kwargs: of the optimizer, as for `peft.optimizers.create_loraplus_optimizer`.
        kind: :class:`sfao.Gate` or :class:`sfao.DriftBound`.
        attached: the one of the tasks before; by default a new one.
        options: of a new one.

    Example::

        >>> optimizer = create_sfao_optimizer(model, lr=1e-4, kind=sfao.DriftBound)
        >>> find_attached(optimizer).consolidate(batches)
    """
    check_arguments(kind, attached, options or {}, None)
    adapters = [parameter for group in adapter_groups(model) for parameter in group["params"]]
    optimizer = optimizer_cls(adapters, **{**kwargs, "lr": lr})
    attach(kind, attached, optimizer, model, options or {})
    return optimizer
