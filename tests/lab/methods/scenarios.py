"""The scenario that a method can be configured in, where the usual one does not tell it the task."""

from sfao.lab.methods import METHODS


def set_scenario(method: str) -> dict[str, str]:
    """Return the setting that a run of this method needs, if any."""
    return {"scenario": "task"} if METHODS[method].needs_task else {}
