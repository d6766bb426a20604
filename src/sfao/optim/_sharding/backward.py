"""Gradients of a model that ranks hold in shards."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from sfao.optim._sharding.shards import make_whole, reshard


def take_by_backward(
    model: nn.Module, evaluate: Callable[[], Tensor], parameters: Sequence[Tensor]
) -> list[Tensor | None]:
    """Return the whole gradients of a value by parameters that ranks hold in shards; `.grad` stays as it is.

    The graph of such a model holds other tensors than its parameters, which get their gradients by backward().
    """
    check_no_pending(model)
    reshard(model)
    everything = list({*model.parameters(), *parameters})
    held = [parameter.grad for parameter in everything]
    for parameter in everything:
        parameter.grad = None
    try:
        evaluate().backward()
        found = [parameter.grad for parameter in parameters]
    finally:
        reshard(model)
        for parameter, gradient in zip(everything, held, strict=True):
            parameter.grad = gradient
    return [None if gradient is None else make_whole(gradient) for gradient in found]


def check_no_pending(model: nn.Module) -> None:
    """Raise a ValueError if ranks still accumulate gradients on their own, which those of a task would be added to."""
    for module in model.modules():
        find_state = getattr(module, "_get_fsdp_state", None)
        if find_state is not None and any(map(_is_pending, _find_groups(find_state()))):
            raise ValueError(
                "directions are stored between steps, but gradients of this model are being accumulated without "
                "reduction; call set_requires_gradient_sync(True), then backward() and step(), before consolidate()"
            )


def _find_groups(state: Any) -> Sequence[Any]:
    """Return what fully_shard knows of the parameters of a module; the name depends on torch's version."""
    groups = getattr(state, "_fsdp_param_groups", None)
    return [group for group in (groups or [getattr(state, "_fsdp_param_group", None)]) if group is not None]


def _is_pending(group: Any) -> bool:
    parameters = getattr(group, "fsdp_params", ())
    whole = [getattr(getattr(parameter, "_unsharded_param", None), "grad", None) for parameter in parameters]
    kept = [getattr(parameter, "unsharded_accumulated_grad", None) for parameter in parameters]
    return not getattr(group, "reduce_grads", True) or any(gradient is not None for gradient in (*whole, *kept))
