"""The decision rules by name."""

from sfao.gating.cosine_rule import COSINE_RULE
from sfao.gating.rule import Rule

RULES: dict[str, Rule] = {"cosine": COSINE_RULE}
