"""The decision of the gate: accept, project or discard."""

from enum import StrEnum


class Decision(StrEnum):
    ACCEPT = "accept"
    PROJECT = "project"
    DISCARD = "discard"


#: Decisions by code. A gradient of zero leaves nothing to decide, but is counted.
DECISIONS = tuple(Decision)
ACCEPTED, PROJECTED, DISCARDED, ZERO = range(4)
COUNTED = (*(str(decision) for decision in DECISIONS), "zero")


# These two are also compiled for devices (`device.layer_kernels`), which is why they have no types and nothing but
# operators. The inequalities of the paper are strict, so the edges at -1 are spelled out.


def accepts(largest, smallest, accept_above, strict):  # type: ignore[no-untyped-def]
    """Above -1 always; with `strict` (not 0) nothing that points against one of the directions."""
    return ((largest > accept_above) | (accept_above == -1)) & ((strict == 0) | (smallest >= 0))


def projects(largest, discard_below):  # type: ignore[no-untyped-def]
    """What is not accepted: discarding below -1 never discards."""
    return (largest > discard_below) | (discard_below == -1)


def decide(
    largest: float, smallest: float, *, accept_above: float, discard_below: float, strict: bool = False
) -> Decision:
    """What to do with the gradient of one layer, given its largest and smallest cosine with the sampled directions.

    The thresholds are lambda_accept and lambda_proj of the paper.
    """
    if accepts(largest, smallest, accept_above, strict):  # type: ignore[no-untyped-call]
        return Decision.ACCEPT
    return Decision.PROJECT if projects(largest, discard_below) else Decision.DISCARD  # type: ignore[no-untyped-call]
