"""Layers that :class:`sfao.DriftBound` can bound, each as a stack of matrices (groups x rows x width), and hooks.

| module | groups | rows | width (its inputs) |
|---|---|---|---|
| Linear | 1 | outputs | inputs, and 1 for the bias |
| Conv1d, Conv2d, Conv3d | groups | channels per group | a patch, and 1 for the bias |
| BatchNorm, LayerNorm, GroupNorm | channels | 1 | the normalized channel, and 1 for the bias |
| Embedding | entries | features | 1: how often the entry is looked up |
"""

import warnings
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from math import prod
from typing import Any
from weakref import WeakMethod

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.nn.functional import batch_norm, group_norm, layer_norm, pad
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from sfao.batches import clean_name
from sfao.distributed import full_tensor, is_sharded, shard_like, to_local


class BoundedLayer:
    """A module whose parameters are read and written as one stack of matrices: a Linear layer.

    A frozen bias belongs to the module's constant outputs and is left out.

    Args:
        path: the module's path in the model.
        module: the module.
        width: the width of the layer's memory, which may include a bias that was frozen since.
    """

    #: True if rows are outputs that a loss may or may not depend on.
    has_outputs = True

    def __init__(self, path: str, module: Any, width: int | None = None) -> None:
        self.path, self.name, self.module = path, clean_name(path), module
        self.weight: Tensor = module.weight
        groups, rows = self.count_rows()
        self.inputs = self.weight.numel() // (groups * rows)
        bias = module._parameters.get("bias")
        self.has_bias = bias is not None and (bias.requires_grad if width is None else width > self.inputs)
        self.parameters: list[Tensor] = [self.weight, bias] if self.has_bias else [self.weight]
        #: The shape of the stack: groups, rows, and inputs with the bias.
        self.shape = groups, rows, self.inputs + self.has_bias
        self.is_sharded = any(map(is_sharded, self.parameters))

    def count_rows(self) -> tuple[int, int]:
        """Return the number of matrices and that of the rows of each."""
        return 1, len(self.weight)

    def input_rows(self, x: Tensor, limit: int, generator: torch.Generator) -> Tensor:
        """Return at most about `limit` input rows, (groups x rows x width), as a mean over them."""
        rows = x.reshape(-1, x.shape[-1])
        return self._with_ones(draw_rows(rows, limit, generator).float()[None])

    def _with_ones(self, rows: Tensor) -> Tensor:
        rows = pad(rows, (0, 1), value=1.0) if self.has_bias else rows
        scaled: Tensor = rows / max(1, rows.shape[1]) ** 0.5
        return scaled

    def used_rows(self, gradient: Tensor) -> Tensor:
        """Return a mask of the outputs, from the gradient of the loss with respect to them."""
        return gradient.reshape(-1, gradient.shape[-1]).ne(0).any(0)

    def rows_with_gradient(self) -> Tensor | None:
        """Return a mask (groups x rows) of rows whose weights have a gradient; None if there is none."""
        if self.weight.grad is None:
            return None
        return full_tensor(self.weight.grad).reshape(*self.shape[:2], -1).ne(0).any(2)

    def is_part_of(self, model: nn.Module) -> bool:
        """Return False if the module or its parameters were replaced."""
        try:
            module = model.get_submodule(self.path)
        except AttributeError:
            return False
        own = [module._parameters.get(name) for name in ("weight", "bias")]
        return module is self.module and all(a is b for a, b in zip(self.parameters, own, strict=False))

    def split(self, matrix: Tensor) -> list[Tensor]:
        """Return views of a stack of matrices, shaped like the parameters."""
        parts = matrix[:, :, : self.inputs], matrix[:, :, self.inputs :]
        return [part.reshape(p.shape) for part, p in zip(parts, self.parameters, strict=False)]

    def read(self) -> Tensor:
        """Return a copy of the parameters as one stack of matrices."""
        matrix = torch.empty(self.shape, dtype=self.weight.dtype, device=self.weight.device)
        for part, parameter in zip(self.split(matrix), self.parameters, strict=True):
            part.copy_(full_tensor(parameter.detach()))
        return matrix

    def subtract_anchor(self, anchor: Tensor) -> Tensor:
        """Return the parameters minus an anchor, as one stack of matrices in float32 or float64."""
        anchor = anchor.to(working_dtype(anchor))
        matrix = torch.empty_like(anchor)
        for part, own, parameter in zip(self.split(matrix), self.split(anchor), self.parameters, strict=True):
            torch.sub(full_tensor(parameter.detach()), own, out=part)
        return matrix

    def subtract(self, values: Sequence[Tensor]) -> None:
        """Subtract values from the parameters that aren't frozen, in float32 or float64."""
        for parameter, value in zip(self.parameters, values, strict=True):
            if parameter.requires_grad:
                own, value = to_local(parameter.detach()), to_local(shard_like(value, parameter))
                if own.dtype == value.dtype:
                    own.sub_(value)
                else:
                    own.copy_(own.to(value.dtype) - value)


class ConvLayer(BoundedLayer):
    def count_rows(self) -> tuple[int, int]:
        return int(self.module.groups), len(self.weight) // int(self.module.groups)

    def input_rows(self, x: Tensor, limit: int, generator: torch.Generator) -> Tensor:
        module = self.module
        x = x if x.ndim == len(module.kernel_size) + 2 else x[None]
        mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        x = pad(x, module._reversed_padding_repeated_twice, mode=mode)
        index = _index_patches(x.shape[2:], module.kernel_size, module.stride, module.dilation)
        index = draw_rows(index, max(1, limit // max(1, len(x))), generator).to(x.device)
        patches = x.flatten(2)[:, :, index].float()  # examples x channels x places x patch
        patches = patches.unflatten(1, (module.groups, -1)).permute(1, 0, 3, 2, 4).flatten(3).flatten(1, 2)
        return self._with_ones(draw_rows(patches.transpose(0, 1), limit, generator).transpose(0, 1))

    def used_rows(self, gradient: Tensor) -> Tensor:
        sizes = gradient.shape[-len(self.module.kernel_size) :]
        return gradient.reshape(-1, len(self.weight), *sizes).movedim(1, 0).flatten(1).ne(0).any(1)


class NormLayer(BoundedLayer):
    has_outputs = False

    def count_rows(self) -> tuple[int, int]:
        return self.weight.numel(), 1

    def input_rows(self, x: Tensor, limit: int, generator: torch.Generator) -> Tensor:
        rows = draw_rows(_normalize(self.module, x.float()), limit, generator)
        return self._with_ones(rows.T[:, :, None])


class EmbeddingLayer(BoundedLayer):
    has_outputs = False

    def count_rows(self) -> tuple[int, int]:
        return len(self.weight), self.weight.shape[1]

    def input_rows(self, x: Tensor, limit: int, generator: torch.Generator) -> Tensor:
        counts = torch.bincount(x.flatten().long(), minlength=len(self.weight))
        return (counts / counts.sum().clamp_min(1)).sqrt().float()[:, None, None]


#: Subclasses count if they use the forward method of these.
KINDS: dict[type[nn.Module], type[BoundedLayer]] = {
    nn.Linear: BoundedLayer,
    nn.Conv1d: ConvLayer,
    nn.Conv2d: ConvLayer,
    nn.Conv3d: ConvLayer,
    _BatchNorm: NormLayer,
    nn.SyncBatchNorm: NormLayer,
    nn.LayerNorm: NormLayer,
    nn.GroupNorm: NormLayer,
    nn.Embedding: EmbeddingLayer,
}


def find_layers(model: nn.Module, known: Mapping[str, int] | None = None) -> dict[str, BoundedLayer]:
    """Return the layers of a model that can be bounded, by name; frozen ones are left out.

    Args:
        model: the model.
        known: the widths of layers that have a memory. They stay as they are if they were frozen since.
    """
    found = {}
    for path, module in model.named_modules():
        kind = next((own for base, own in KINDS.items() if type(module).forward is base.forward), None)
        weight, width = module._parameters.get("weight"), (known or {}).get(clean_name(path))
        if kind is None or weight is None or is_lazy(weight) or not (width or weight.requires_grad):
            continue
        if isinstance(module, nn.Embedding) and module.max_norm is not None:  # its forward changes the weights
            continue
        layer = kind(path, module, width)
        found[layer.name] = layer
    return found


def warn_of_unbounded(
    model: nn.Module, layers: Mapping[str, BoundedLayer], known: Container[str], trained: Container[Tensor]
) -> bool:
    """Warn of trainable parameters outside the `known` layers; return True if there are any.

    Layers that could be bounded count only if they were `trained`: heads of later tasks weren't yet.
    """
    fine = {
        parameter
        for name, layer in layers.items()
        for parameter in layer.parameters
        if name in known or parameter not in trained
    }
    missed = [name for name, p in model.named_parameters() if p.requires_grad and p not in fine]
    if missed:
        more = f" and {len(missed) - 8} more" if len(missed) > 8 else ""
        warnings.warn(
            f"these parameters can't be bounded and train as usual: {', '.join(missed[:8])}{more}; "
            "freeze them with requires_grad_(False) to keep what they know",
            stacklevel=3,
        )
    return bool(missed)


def working_dtype(tensor: Tensor) -> torch.dtype:
    """Return the dtype to compute with: float64 stays, anything else is float32."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def draw_rows(rows: Tensor, limit: int, generator: torch.Generator) -> Tensor:
    """Return all rows, or `limit` of them; of very many rows, some may be drawn twice."""
    if len(rows) <= limit:
        return rows
    if len(rows) > 8 * limit:
        chosen = torch.randint(len(rows), (limit,), generator=generator, device="cpu")
    else:
        chosen = torch.randperm(len(rows), generator=generator, device="cpu")[:limit]
    return rows[chosen.sort().values.to(rows.device)]


def _normalize(module: Any, x: Tensor) -> Tensor:
    """Return the normalized inputs of a norm layer as rows of channels."""
    if isinstance(module, nn.LayerNorm):
        return layer_norm(x, module.normalized_shape, eps=module.eps).reshape(-1, prod(module.normalized_shape))
    if isinstance(module, nn.GroupNorm):
        normed = group_norm(x, module.num_groups, eps=module.eps)
    elif module.running_mean is None:
        normed = batch_norm(x, None, None, training=True, eps=module.eps)
    else:
        normed = batch_norm(x, module.running_mean.float(), module.running_var.float(), eps=module.eps)
    return normed.movedim(1, -1).flatten(0, -2)


def _index_patches(size: Iterable[int], kernel: Any, stride: Any, dilation: Any) -> Tensor:
    """Return the flat index of every entry of every patch, (places x patch)."""
    starts, offsets = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    for length, k, s, d in zip(size, kernel, stride, dilation, strict=True):
        along = torch.arange(0, length - d * (k - 1), s)
        starts = (starts[:, None] * length + along).flatten()
        offsets = (offsets[:, None] * length + d * torch.arange(k)).flatten()
    return starts[:, None] + offsets


# -- Hooks on a model ----------------------------------------------------------------------------------


class WeakHook:
    """Calls a method of an object while it exists. Copies and pickles do nothing.

    It is never traced. With ``torch.compile(model, fullgraph=True)`` it must be a hook of the compiled model.
    """

    def __init__(self, method: Callable[..., Any] | None = None) -> None:
        self._method = None if method is None else WeakMethod(method)

    @_disable_dynamo
    def __call__(self, *args: Any) -> Any:
        method = None if self._method is None else self._method()
        return None if method is None else method(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return WeakHook, ()


class FreezeStatistics:
    """Forward pre-hook of BatchNorm layers: with `active`, they normalize with their running statistics.

    `momentum=0` would not be enough: training would still normalize with the statistics of each batch. The hook must
    exist before the first compiled call; later ones are ignored by torch.compile. Copies and pickles do nothing.
    """

    def __init__(self) -> None:
        self.active = False
        #: The layers with this hook.
        self.modules: set[nn.Module] = set()

    def hook(self, model: nn.Module) -> None:
        """Hook the BatchNorm layers with running statistics, old and new ones."""
        for module in model.modules():
            if isinstance(module, _BatchNorm) and module.running_mean is not None and module not in self.modules:
                module.register_forward_pre_hook(self)
                self.modules.add(module)

    def __call__(self, module: nn.Module, args: object) -> None:
        if self.active:
            module.training = False

    def __reduce__(self) -> tuple[Any, ...]:
        return FreezeStatistics, ()
