"""Softness: how much of a gradient to take away along the axes that matter, so that a share of its length is kept.

A gradient with squared lengths e_j along axes of importance a_j keeps a factor r / (r + a_j) of each. Where r is small
that is a projection off all axes, where it is large nothing is removed. r is the smallest that keeps the share: a
gradient that is long enough off the axes is projected off them, whatever their importance.
"""

from typing import NamedTuple

import torch
from torch import Tensor

#: The logarithms of r between which it is looked for, in units of the mean importance of an input.
HARDEST, SOFTEST = -7.0, 16.0
#: r is bracketed by so many candidates, so many times; then interpolated, so that rounding moves it but little.
CANDIDATES, ROUNDS = 16, 2
#: The exponents of a share at the start of a way, and what is added where a layer has come as far as it is long.
OUTSET, ON_THE_WAY = 0.7, 0.6
#: Shares of which one is all of a gradient, but for rounding, and the other nothing.
ALL, NOTHING = 1 - 1e-6, 1e-3


def choose_shares(keep: Tensor, tasks: Tensor, path: Tensor, drift: Tensor, tolerance: Tensor) -> Tensor:
    """Return the shares of gradients' lengths to keep: less after more tasks, on longer ways, and where outputs drift.

    The first task remembered leaves `keep` of a layer that has come a sixteenth of its own length, more before and less
    after; the t-th `keep ** sqrt(t)`; a drift as large as `tolerance` squares that.
    """
    way = OUTSET + ON_THE_WAY * path.sqrt().sqrt()
    return keep ** (tasks.sqrt() * (way + (drift / tolerance).square()))


class Table(NamedTuple):
    """What the search for r needs at every step and depends on importances alone."""

    #: The places of the candidates between the ends of a bracket, and those of the bracket around the one found.
    steps: Tensor
    offsets: Tensor
    #: The first candidates, as logarithms, and the squares of the factors that each of them leaves.
    logarithms: Tensor
    squares: Tensor


def tabulate(importances: Tensor) -> Table:
    """Return the table of these importances (layers x axes)."""
    steps = torch.linspace(0, 1, CANDIDATES, dtype=importances.dtype, device=importances.device)
    logarithms = (HARDEST + (SOFTEST - HARDEST) * steps).expand(len(importances), -1)
    squares = _soften(logarithms.exp()[:, :, None], importances[:, None]).square()
    return Table(steps, torch.arange(-1, 1, device=importances.device), logarithms, squares)


def find_factors(
    energies: Tensor, outside: Tensor, importances: Tensor, shares: Tensor, table: Table | None = None
) -> Tensor:
    """Return what to keep along each axis, (layers x axes), so that each layer keeps its share of the length.

    Args:
        energies: squared lengths of the gradients along each axis (layers x axes).
        outside: squared lengths off all axes (layers).
        importances: of each axis, in units of the mean over all inputs; 0 for axes that are not there.
        shares: of the lengths to keep (layers). 1 keeps everything, 0 is a projection off all axes.
        table: of the importances, where they have been tabulated before.
    """
    steps, offsets, logarithms, squares = table or tabulate(importances)
    outside, shares = outside[:, None], shares[:, None]
    wanted = shares.square() * (energies.sum(1, keepdim=True) + outside)

    def bracket(logarithms: Tensor, squares: Tensor) -> tuple[Tensor, Tensor]:
        """Return the candidates, as logarithms, around the one that is wanted, and what each keeps."""
        kept = (energies[:, None] * squares).sum(2).add_(outside)
        # The candidates before the first that is enough; the last is taken to be.
        short = (kept[:, :-1] < wanted).sum(1, keepdim=True)
        places = (short + offsets).clamp_min_(0)
        return logarithms.gather(1, places), kept.gather(1, places)

    ends, kept = bracket(logarithms, squares)
    for _ in range(ROUNDS - 1):
        logarithms = torch.lerp(ends[:, :1], ends[:, 1:], steps)
        ends, kept = bracket(logarithms, _soften(logarithms.exp()[:, :, None], importances[:, None]).square_())
    least, most = kept[:, :1], kept[:, 1:]
    part = ((wanted - least) / (most - least).clamp_min_(torch.finfo(most.dtype).tiny)).clamp_(0, 1)
    found = _soften(torch.lerp(ends[:, :1], ends[:, 1:], part).exp_(), importances)
    is_between = (shares > 0) & (shares < 1)
    return torch.where(is_between, found, keep_or_remove(importances, shares[:, 0]))


def keep_or_remove(importances: Tensor, shares: Tensor) -> Tensor:
    """Return the factors at the two ends: 1 along all axes, or 0 along those that are there where the share is 0."""
    return ((shares > 0)[:, None] | (importances <= 0)).to(importances.dtype)


def _soften(softness: Tensor, importances: Tensor) -> Tensor:
    return softness / (softness + importances)


def choose_scales(kept: Tensor, restore: Tensor) -> Tensor:
    """Return the factors that give updates which kept these shares their gradients' lengths back, up to `restore`.

    0 where nothing is left: rounding would still move what has nowhere to go.
    """
    scales = torch.minimum(1 / kept.clamp_min(NOTHING), restore).clamp_min(1)
    return torch.where(kept > NOTHING, scales, torch.zeros_like(scales))
