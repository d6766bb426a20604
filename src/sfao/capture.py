"""Inputs of every layer on examples of a finished task, and the outputs that its loss depends on."""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from sfao.batches import Batch, Objective, draw_examples, eval_mode, find_leaves, measure_size, to_model
from sfao.bounded_layers import BoundedLayer
from sfao.distributed import Ranks, full_tensor, is_data_parallel, reshard

#: Input rows per layer: as many as their product with themselves takes so many multiplications, between two limits.
FEWEST, MOST, WORK = 2**11, 2**14, 3e9


@dataclass
class Inputs:
    """Input rows of one layer, a list for each call of the layer in a forward pass."""

    calls: list[list[Tensor]] = field(default_factory=list)
    #: The number of examples that each call saw.
    examples: list[int] = field(default_factory=list)
    #: A mask of the outputs that the loss depends on; None if that isn't known.
    used: Tensor | None = None

    def add(self, call: int, rows: Tensor, examples: int) -> None:
        """Add rows whose sum R'R is `examples` times their second moment."""
        if call == len(self.calls):
            self.calls.append([])
            self.examples.append(0)
        self.calls[call].append(rows)
        self.examples[call] += examples

    def rows(self) -> list[Tensor]:
        """Return the rows of each call, scaled so that R'R is the second moment over all examples."""
        return [torch.cat(rows, 1) / count**0.5 for rows, count in zip(self.calls, self.examples, strict=True)]

    def join(self, other: "Inputs") -> None:
        """Add the inputs of another rank."""
        self.used = None if self.used is None or other.used is None else self.used | other.used
        for call, (rows, examples) in enumerate(zip(other.calls, other.examples, strict=True)):
            self.add(call, rows[0], examples)


@dataclass(frozen=True)
class Tap:
    """One call of a layer; its output is a leaf of the graph."""

    layer: BoundedLayer
    x: Tensor
    output: Tensor


def capture_inputs(
    model: nn.Module,
    layers: Mapping[str, BoundedLayer],
    batches: Iterable[Batch],
    objective: Objective,
    examples: int,
    generator: torch.Generator,
    *,
    finds_used: bool = True,
) -> tuple[dict[str, Inputs], int]:
    """Run examples through the model in eval mode; return what each layer was given, and the number of examples.

    The outputs of Linear and convolution layers are cut from the graph, so the backward pass only reaches the last of
    them. It shows which outputs the loss depends on. Layers without such outputs, like the heads of other tasks, are
    left out.

    Args:
        model: without wrappers that hide its modules.
        layers: the layers to watch, by name.
        batches: batches to run, on any device.
        objective: objective(model, batch).
        examples: about how many examples there are, which sets the share of input rows drawn from each.
        generator: draws the input rows.
        finds_used: run the backward pass.
    """
    found: dict[str, Inputs] = {name: Inputs() for name in layers}
    calls: Counter[str] = Counter()
    taps: list[Tap] = []
    outputs: list[Any] = []
    #: By layer whose outputs a loss may depend on: True if one did.
    in_loss: dict[str, bool] = {}
    count = size = 0
    is_backward = False

    def record(layer: BoundedLayer, arguments: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> Any:
        x = arguments[0] if arguments else next(iter(keywords.values()))
        cut = output.detach().requires_grad_() if finds_used and layer.has_outputs else None
        if not is_backward:  # activation checkpointing runs the forward pass again, and must build the same graph
            width = layer.weight[0].numel() + 1
            most = min(max(FEWEST, int(WORK / width**2)), MOST)
            inputs = full_tensor(x.detach()) if layer.is_sharded else x.detach()
            rows = layer.input_rows(inputs, max(1, most * size // examples), generator)
            if not bool(torch.isfinite(rows).all()):
                raise ValueError(
                    f"the inputs of layer {layer.name!r} must be finite, but a forward pass gave NaN or inf"
                )
            found[layer.name].add(calls[layer.name], rows * size**0.5, size)
            calls[layer.name] += 1
            if cut is not None:
                taps.append(Tap(layer, x, cut))
        return None if cut is None else cut.clone()

    def make_hook(layer: BoundedLayer) -> Any:
        return lambda _, arguments, keywords, output: record(layer, arguments, keywords, output)

    # Compiled code ignores new hooks.
    eagerly = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
    with ExitStack() as stack, eval_mode(model), torch.set_grad_enabled(finds_used), eagerly:
        for layer in layers.values():
            stack.enter_context(layer.module.register_forward_hook(make_hook(layer), with_kwargs=True))
        stack.enter_context(model.register_forward_hook(lambda _, x, output: outputs.extend(find_leaves(output))))
        for batch in batches:
            size = measure_size(batch)
            count += size
            value = objective(model, to_model(batch, model))
            if not bool(torch.isfinite(value)):
                raise ValueError(f"the loss of a past task must be finite, got {float(value.detach())}")
            if taps and value.requires_grad:
                is_backward = True
                for tap, mask in zip(taps, find_used(value, taps, outputs), strict=True):
                    name, inputs = tap.layer.name, found[tap.layer.name]
                    in_loss[name] = in_loss.get(name, False) or mask is not None
                    if mask is not None:
                        inputs.used = mask if inputs.used is None else inputs.used | mask
                is_backward = False
            taps.clear()
            outputs.clear()
            calls.clear()
    if not count:
        raise ValueError("`batches` must yield at least one batch, got none")
    for inputs in found.values():  # gradients of zero say nothing
        inputs.used = None if inputs.used is not None and not bool(inputs.used.any()) else inputs.used
    return {name: inputs for name, inputs in found.items() if inputs.calls and in_loss.get(name, True)}, count


def find_used(value: Tensor, taps: list[Tap], outputs: list[Any]) -> list[Tensor | None]:
    """Return, for the outputs of each call, a mask of those that the loss depends on; None if it can't depend on any.

    Outputs without a gradient belong to a layer in the middle of the model, and all of them count. The exception are
    outputs that the model returns and the loss leaves out, and layers that only lead to such outputs.

    Args:
        value: the loss.
        taps: calls of layers, in their order.
        outputs: what the model returned, out of its containers.
    """
    gradients = torch.autograd.grad(value, [tap.output for tap in taps], allow_unused=True)
    left_out = find_sources(outputs, taps) - find_sources([value], taps)
    masks: list[Tensor | None] = []
    for tap, gradient in zip(taps, gradients, strict=True):
        if gradient is not None:
            masks.append(tap.layer.used_rows(gradient))
        else:
            every = torch.ones(len(tap.layer.weight), dtype=torch.bool, device=value.device)
            masks.append(None if tap.output in left_out else every)
    return masks


def find_sources(values: list[Any], taps: list[Tap]) -> set[Tensor]:
    """Return the outputs of layers that these values were computed from, through the cuts of the graph."""
    inputs = {tap.output: tap.x for tap in taps}
    nodes = [getattr(value, "grad_fn", None) for value in values]
    seen, found = set(nodes), set()
    while nodes:
        node = nodes.pop()
        leaf = getattr(node, "variable", None)
        if leaf in inputs:
            found.add(leaf)
            children = [inputs[leaf].grad_fn]
        else:
            children = [] if node is None else [child for child, _ in node.next_functions]
        nodes += [child for child in children if child not in seen]
        seen.update(children)
    return found


def capture_task(
    model: nn.Module,
    layers: Mapping[str, BoundedLayer],
    batches: Iterable[Batch],
    objective: Objective,
    examples: int,
    generator: torch.Generator,
    ranks: Ranks,
) -> tuple[dict[str, Inputs], int]:
    """Return the inputs of every layer on examples of all ranks, and the number of examples."""
    is_shared = any(layer.is_sharded for layer in layers.values())
    # Under tensor parallel all ranks see the same batches.
    parts = ranks.size if is_data_parallel(model) else 1
    drawn: Iterable[Batch] = draw_examples(batches, -(-examples // parts), generator)
    if is_shared:  # every forward pass is a collective
        drawn = list(drawn)
        drawn = drawn[: min(ranks.gather(len(drawn)))]
    found, count = capture_inputs(model, layers, drawn, objective, examples, generator, finds_used=not is_shared)
    if is_shared:
        reshard(model)
    if parts == 1:
        ranks.gather(None)  # no rank goes on if another has failed
        return found, count
    for inputs in found.values():  # on the CPU, with one tensor for each call
        inputs.calls = [[torch.cat(rows, 1).cpu()] for rows in inputs.calls]
        inputs.used = None if inputs.used is None else inputs.used.cpu()
    joint: dict[str, Inputs] = {}
    everywhere = ranks.gather((found, count))
    for of_rank, _ in everywhere:
        for name, inputs in of_rank.items():
            joint.setdefault(name, Inputs(used=inputs.used)).join(inputs)
    return joint, sum(of_rank for _, of_rank in everywhere)
