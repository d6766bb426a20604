"""The decisions of the gate: accept, project or discard."""

from enum import StrEnum


class Decision(StrEnum):
    ACCEPT = "accept"
    PROJECT = "project"
    DISCARD = "discard"


#: Decisions by code. A gradient of zero leaves nothing to decide, but is counted.
DECISIONS = tuple(Decision)
ACCEPTED, PROJECTED, DISCARDED, ZERO = range(4)
COUNTED = (*(str(decision) for decision in DECISIONS), "zero")
