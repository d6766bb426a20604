"""The gate's steps on the host: one layer after the other, each decision known before the next."""

from sfao.gating.decision import Decision, decide
from sfao.optim.gradients import LayerGradient
from sfao.optim.layers import Found, Layer
from sfao.optim.seen import Seen


def gate_on_host(found: Found) -> Seen:
    """Turn the gradient of every layer into its update, in place; nothing is changed if one is not finite."""
    for layer, gradient in found:
        layer.check_finite(gradient)
    seen = Seen({}, {}, {layer.name: gradient.norm for layer, gradient in found})
    for layer, gradient in found:
        decision, cosine = _gated(layer, gradient)
        layer.counts[decision or "zero"] += 1
        if cosine is not None:
            seen.cosines[layer.name] = cosine
        if decision:
            seen.decisions[layer.name] = decision
    return seen


def _gated(layer: Layer, gradient: LayerGradient) -> tuple[Decision | None, float | None]:
    """Decide on a gradient and make it the update; with the cosine that decided, where one did.

    There is no decision on a gradient of zero.
    """
    if gradient.norm == 0:
        return None, None
    memory, options = layer.memory, layer.options
    if len(memory) == 0:
        return Decision.ACCEPT, None
    layer.follow(gradient)
    matrices = gradient.matrices()
    sample = memory.sampler.draw(len(memory), options["samples"])
    # Inner products with everything serve the projection too, where they had to be or may as well be taken.
    all_dots = memory.dots(matrices) if memory.is_small or isinstance(sample, slice) else None
    dots = memory.dots(matrices, sample) if all_dots is None else all_dots[sample]
    largest, smallest = memory.extreme_cosines(matrices, gradient.working_norm, dots, sample, options["cosine"])
    decision = decide(
        largest,
        smallest,
        accept_above=options["accept_above"],
        discard_below=options["discard_below"],
        strict=options["strict"],
    )
    if decision is Decision.PROJECT:
        memory.project_(matrices, gradient.working_norm, options["projection"], all_dots)
        gradient.write_back(matrices)
    elif decision is Decision.DISCARD:
        gradient.zero_()
    return decision, largest
