"""Triton kernels that look at one layer each: its norm, its sample, what is decided, the weights of a projection."""

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

import triton
import triton.language as tl

from sfao.gating._device.columns import (
    ACCEPTED,
    CLEAR,
    CODES,
    DISCARDED,
    KEEP,
    LAYER_BEGIN,
    LAYER_END,
    LAYER_WIDTH,
    PROJECT,
    PROJECTED,
    RULE_OPTIONS,
    RULE_STATES,
    ZERO,
)
from sfao.gating.cosine_rule import judge, number_below


def compile_function(function: Callable[..., Any]) -> Any:
    """Return one of the host's own functions for kernels to call."""
    # With `tl` among its globals, where Triton's interpreter wants to see it.
    return triton.jit(FunctionType(function.__code__, globals()))


_number_below = compile_function(number_below)
_judge = compile_function(judge)


@triton.jit
def measure(norms, roots, scales, looking, partial, segments, held, TILES: tl.constexpr):
    """norms[layer] = its norm, from sums of squares always added in the same order, with what it is scaled by.

    A layer is looking that has directions to compare with, and a gradient that is neither zero nor not finite.
    """
    layer = tl.program_id(0)
    begin = tl.load(segments + layer * LAYER_WIDTH + LAYER_BEGIN)
    end = tl.load(segments + layer * LAYER_WIDTH + LAYER_END)
    total = tl.zeros((TILES,), dtype=tl.float64)
    for start in range(begin, end, TILES):
        numbers = start + tl.arange(0, TILES)
        total += tl.load(partial + numbers, mask=numbers < end, other=0.0)
    norm = tl.sqrt(tl.sum(total, axis=0))
    scale = tl.sqrt(norm)
    ordinary = (norm < float("inf")) & (norm >= 1e-300)
    tl.store(norms + layer, norm)
    tl.store(scales + layer, scale.to(tl.float32))
    tl.store(roots + layer, tl.where(ordinary, 1 / tl.where(ordinary, scale, 1.0), 0.0).to(tl.float32))
    tl.store(looking + layer, (ordinary & (tl.load(held + layer) > 0)).to(tl.int32))


@triton.jit
def draw(sample, turns, seeds, held, samples, looking, capacity, PLACES: tl.constexpr):
    """sample[layer] = what `cosine_rule.Sampler` draws at this turn, where not all directions are looked at."""
    layer = tl.program_id(0)
    count = tl.load(held + layer)
    some = tl.load(samples + layer)
    if (some >= count) | (tl.load(looking + layer) == 0):
        return
    seed = tl.load(seeds + layer)
    turn = tl.load(turns + layer)
    places = tl.arange(0, PLACES)
    chosen = tl.full((PLACES,), -1, dtype=tl.int64)
    for place in range(some):
        largest = count - some + place
        number = _number_below(seed, turn, place, largest + 1)
        taken = tl.max((chosen == number).to(tl.int32), axis=0) > 0
        chosen = tl.where(places == place, tl.where(taken, largest, number), chosen)
    tl.store(sample + layer * capacity + places, chosen.to(tl.int32), mask=places < some)


@triton.jit
def decide(
    codes, cosines, projecting, sound, counts, broken, stale, turns,
    norms, dots, inverse_norms, sample, held, samples, rule_options, rule_states, absolute, retired, layers, capacity,
    sampled: tl.constexpr, LAYERS: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """Decide on a layer, from its cosines with the directions looked at, and count that.

    If the gradient of any layer is not finite nothing is counted or projected.
    """
    layer = tl.program_id(0).to(tl.int64)
    numbers = tl.arange(0, LAYERS)
    others = tl.load(norms + numbers, mask=numbers < layers, other=0.0)
    is_retired = tl.load(retired) != 0
    is_sound = (tl.min((others < float("inf")).to(tl.int32), axis=0) > 0) & (is_retired == 0)
    norm = tl.load(norms + layer)
    some = tl.load(samples + layer)
    count = tl.load(held + layer)

    largest = tl.full((PLACES,), -2.0, dtype=tl.float64)
    smallest = tl.full((PLACES,), 2.0, dtype=tl.float64)
    for start in range(0, some, PLACES):
        places = start + tl.arange(0, PLACES)
        inside = places < some
        slots = places
        if sampled:
            slots = tl.load(sample + layer * capacity + places, mask=inside, other=0)
        inverse = tl.load(inverse_norms + layer * capacity + slots, mask=inside, other=0.0)
        cosine = tl.load(dots + layer * capacity + places, mask=inside, other=0.0) * inverse
        cosine = tl.minimum(tl.maximum(cosine, -1.0), 1.0)
        # A direction that is zero where there is a gradient has no cosine.
        largest = tl.where(inverse > 0, tl.maximum(largest, cosine), largest)
        smallest = tl.where(inverse > 0, tl.minimum(smallest, cosine), smallest)
    most, least = tl.max(largest, axis=0), tl.min(smallest, axis=0)
    most = tl.where(tl.load(absolute + layer) != 0, tl.maximum(most, -least), most)
    none = least > 1.5
    most, least = tl.where(none, 1.0, most), tl.where(none, 1.0, least)

    given = rule_options + layer * RULE_OPTIONS
    state = rule_states + layer * RULE_STATES
    accepts, projects, first, second = _judge(
        most, least,
        tl.load(given), tl.load(given + 1), tl.load(given + 2), tl.load(given + 3), tl.load(state), tl.load(state + 1),
    )  # fmt: skip
    code = tl.where(accepts | (count == 0), ACCEPTED, tl.where(projects, PROJECTED, DISCARDED))
    code = tl.where(norm < 1e-300, ZERO, code)
    tl.store(codes + layer, code.to(tl.int64))
    tl.store(cosines + layer, most)
    tl.store(projecting + layer, ((code == PROJECTED) & is_sound).to(tl.int32))
    if is_sound:
        tl.store(counts + layer * CODES + code, tl.load(counts + layer * CODES + code) + 1)
        if (count > 0) & (code != ZERO):
            tl.store(state, first)
            tl.store(state + 1, second)
        if (some < count) & (code != ZERO):
            tl.store(turns + layer, tl.load(turns + layer) + 1)
    if (norm < float("inf")) == 0:
        tl.store(broken + layer, True)
    if layer == 0:
        tl.store(sound, is_sound)
        if is_retired:
            tl.store(stale, True)


@cache
def decide_with(rule: Callable[..., Any]) -> Any:
    """Return the kernel `decide` with the function of another rule in it."""
    if rule is judge:
        return decide
    namespace = {**globals(), "_judge": compile_function(rule)}
    kernel = FunctionType(decide.fn.__code__, namespace)
    kernel.__annotations__ = decide.fn.__annotations__  # they say which arguments are constants
    return triton.jit(kernel)


@triton.jit
def weigh(
    weights, actions, again, solved, dots, codes, wanted, sound, spans_all, orthogonal, capacity,
    first: tl.constexpr, rounding: tl.constexpr, tolerance: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """weights[layer] = those of the directions in a projection that is wanted, 0 elsewhere, with what is to be done.

    The first time also whether it must be done again, since rounding may show in what is left: the gradients have
    norm 1 here.
    """
    layer = tl.program_id(0).to(tl.int64)
    is_wanted = tl.load(wanted + layer) != 0
    along = tl.zeros((PLACES,), dtype=tl.float64)
    size = tl.zeros((PLACES,), dtype=tl.float64)
    for start in range(0, capacity, PLACES):
        places = layer * capacity + start + tl.arange(0, PLACES)
        inside = start + tl.arange(0, PLACES) < capacity
        weight = tl.load(solved + places, mask=inside & is_wanted, other=0.0)
        along += weight * tl.load(dots + places, mask=inside & is_wanted, other=0.0)
        size += tl.abs(weight)
        tl.store(weights + places, weight.to(tl.float32), mask=inside)
    if first:
        code = tl.load(codes + layer)
        everything = tl.load(spans_all + layer) != 0
        cleared = (code == DISCARDED) | (is_wanted & everything) | (tl.load(sound) == 0)
        left = tl.sqrt(tl.maximum(1.0 - tl.sum(along, axis=0), 0.0))
        shows = (rounding * (1.0 + tl.sum(size, axis=0)) > tolerance * left) & (tl.load(orthogonal + layer) != 0)
        tl.store(again + layer, (is_wanted & shows & (cleared == 0)).to(tl.int32))
        tl.store(actions + layer, tl.where(cleared, CLEAR, tl.where(is_wanted, PROJECT, KEEP)).to(tl.int32))
    else:
        tl.store(actions + layer, tl.where(is_wanted, PROJECT, KEEP).to(tl.int32))
