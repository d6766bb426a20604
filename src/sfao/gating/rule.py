"""A decision rule as a value: the options it reads, how it decides, and what it keeps from one step to the next."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

#: The columns that the kernels keep for the options and for the state of a rule.
MAX_OPTIONS, MAX_STATES = 4, 2


@dataclass(frozen=True)
class Rule:
    """Decides on the gradient of one layer from its cosines with the directions it is compared with.

    `judge` takes the largest and the smallest cosine, then `MAX_OPTIONS` options and `MAX_STATES` values of state, and
    returns whether to accept, whether else to project, and the next state. The very function is also compiled for
    devices: it has no types, no names but its arguments, and nothing but operators.
    """

    #: Names and defaults of the options, numbers or flags, in the order in which `judge` takes them.
    options: Mapping[str, Any]
    #: Raises a ValueError that names the first option whose value breaks its rule.
    check: Callable[[Mapping[str, Any]], None]
    judge: Callable[..., tuple[Any, ...]]
    #: The state before the first step.
    state: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.options) > MAX_OPTIONS or len(self.state) > MAX_STATES:
            raise ValueError(
                f"a rule must have at most {MAX_OPTIONS} options and {MAX_STATES} values of state, "
                f"got {len(self.options)} and {len(self.state)}"
            )

    def numbers(self, options: Mapping[str, Any]) -> tuple[float, ...]:
        """Return the options as `judge` takes them."""
        given = [float(options[name]) for name in self.options]
        return (*given, *[0.0] * (MAX_OPTIONS - len(given)))

    def initial_state(self) -> tuple[float, ...]:
        """Return the state before the first step as `judge` takes it."""
        return (*self.state, *[0.0] * (MAX_STATES - len(self.state)))
