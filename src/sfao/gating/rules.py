"""The decision rules by name, and their options for type checkers."""

from typing import TypedDict

from sfao.gating.cosine_rule import COSINE_RULE
from sfao.gating.rule import Rule

RULES: dict[str, Rule] = {"cosine": COSINE_RULE}


class RuleOptions(TypedDict, total=False):
    """The options of all rules. Rules may share an option if they give it the same default."""

    accept_above: float
    discard_below: float
    strict: bool


def check_defaults(rules: dict[str, Rule]) -> None:
    """Raise a ValueError if two rules give an option different defaults: which one would hold?"""
    known: dict[str, object] = {}
    for name, rule in rules.items():
        for option, default in rule.options.items():
            if known.setdefault(option, default) != default:
                raise ValueError(f"`{option}` must have one default, got {default!r} of the rule {name!r} and another")


check_defaults(RULES)
