"""The decision of the gate: accept, project or discard."""

from enum import StrEnum
from typing import TypeVar

from torch import Tensor

T = TypeVar("T", float, Tensor)


class Decision(StrEnum):
    ACCEPT = "accept"
    PROJECT = "project"
    DISCARD = "discard"


#: Decisions by code. A gradient of zero leaves nothing to decide, but is counted.
DECISIONS = tuple(Decision)
ACCEPTED, PROJECTED, DISCARDED, ZERO = range(4)
COUNTED = (*(str(decision) for decision in DECISIONS), "zero")


def decision_code(largest: T, smallest: T, accept_above: T, discard_below: T, strict: T) -> T:
    """The code of what to do with a gradient, given its largest and smallest cosine with the sampled directions.

    For numbers, and for tensors of them, one a layer. The thresholds are lambda_accept and lambda_proj of the
    paper. Its inequalities are strict, so the two edges at -1 are spelled out: accepting above -1 always accepts,
    discarding below -1 never discards. With `strict` (not 0), nothing is accepted that points against a direction.
    """
    accepted = ((largest > accept_above) | (accept_above == -1)) & ((strict == 0) | (smallest >= 0))
    projected = (largest > discard_below) | (discard_below == -1)
    code: T = (1 - accepted * 1) * (2 - projected * 1)
    return code


def decide(
    largest: float, smallest: float, *, accept_above: float, discard_below: float, strict: bool = False
) -> Decision:
    """What to do with the gradient of one layer."""
    return DECISIONS[int(decision_code(largest, smallest, accept_above, discard_below, float(strict)))]
