"""The decision of the gate: accept, project or discard."""

from enum import StrEnum


class Decision(StrEnum):
    ACCEPT = "accept"
    PROJECT = "project"
    DISCARD = "discard"


def decide(
    largest: float,
    smallest: float,
    *,
    accept_above: float,
    discard_below: float,
    strict: bool = False,
) -> Decision:
    """What to do with a gradient, given its largest and smallest cosine with the sampled directions.

    The thresholds are lambda_accept and lambda_proj of the paper. Its inequalities are strict, so the
    two edges at -1 are spelled out: accepting above -1 always accepts, discarding below -1 never discards.
    """
    accepted = largest > accept_above or accept_above == -1
    if accepted and not (strict and smallest < 0):
        return Decision.ACCEPT
    if largest > discard_below or discard_below == -1:
        return Decision.PROJECT
    return Decision.DISCARD
