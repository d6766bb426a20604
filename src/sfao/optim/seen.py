"""What a step of the gate saw and did."""

from dataclasses import dataclass

from sfao.gating.decision import Decision


@dataclass(frozen=True)
class Seen:
    """By layer: what was decided, the cosine that decided, and the norm of the gradient."""

    decisions: dict[str, Decision]
    cosines: dict[str, float]
    norms: dict[str, float]
