"""peft: the layers of an adapter, and an optimizer for them with a gate in front."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from sfao.checks import explain_missing
from sfao.integrations.gates import check_one_source, move_gate
from sfao.optim.gate import Gate
from sfao.optim.layers import layer_groups

try:
    from peft import PeftModel
    from peft.tuners.tuners_utils import BaseTunerLayer
except ImportError as error:
    raise explain_missing(error, "peft", "sfao.integrations.peft", "peft") from None

#: Where the state of an optimizer says which base model its adapters belong to.
BASE_KEY = "sfao_adapter_base"
#: Entries of each frozen weight that its digest reads, evenly spaced.
DIGEST_ENTRIES = 4096


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
    gate: Gate | None = None,
    gate_options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Optimizer:
    """Return an optimizer of the adapters of a peft model, with a gate in front.

    :func:`sfao.integrations.gates.find_gate` returns that gate. A state that was saved with another base model, such as
    one into which the adapter was merged since, is refused.

    Args:
        model: as returned by `get_peft_model`.
        optimizer_cls, lr, kwargs: of the optimizer, as for `peft.optimizers.create_loraplus_optimizer`.
        gate: the gate of the tasks before, which leaves their optimizer; by default a new one.
        gate_options: of the gate that is made, see :class:`sfao.Gate`.
    """
    check_one_source(gate, gate_options or {})
    groups = adapter_groups(model)
    adapters = [parameter for group in groups for parameter in group["params"]]
    optimizer = optimizer_cls(adapters, **{**kwargs, "lr": lr})
    if gate is None:
        Gate(groups, **(gate_options or {})).attach(optimizer)
    else:
        move_gate(gate, optimizer, model)
    guard_base(optimizer, model)
    return optimizer


def guard_base(optimizer: Optimizer, model: nn.Module) -> None:
    """Let the state of an optimizer name the frozen weights beside its adapters, and refuse that of others."""

    def write(optimizer: Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        return {**state, BASE_KEY: digest_base(model)}

    def check(optimizer: Optimizer, state: dict[str, Any]) -> dict[str, Any]:
        saved, present = state.get(BASE_KEY), digest_base(model)
        if saved is not None and saved != present:
            raise RuntimeError(
                f"`state_dict` must be of adapters of this base model ({present[:12]}), got one of {saved[:12]}; after "
                "merge_and_unload() the memory of the adapter is void: start with a new optimizer"
            )
        return {name: value for name, value in state.items() if name != BASE_KEY}

    optimizer.register_state_dict_post_hook(write)
    optimizer.register_load_state_dict_pre_hook(check, prepend=True)


def digest_base(model: nn.Module) -> str:
    """Return a digest of the frozen weights that adapters stand beside."""
    digest = sha256()
    for name, module in model.named_modules():
        if isinstance(module, BaseTunerLayer):
            weight = module.get_base_layer().weight.detach()
            entries = weight.flatten()[:: max(1, weight.numel() // DIGEST_ENTRIES)]
            digest.update(f"{name} {tuple(weight.shape)}".encode())
            digest.update(entries.float().cpu().numpy().tobytes())
    return digest.hexdigest()


__all__ = ["adapter_groups", "create_sfao_optimizer"]
