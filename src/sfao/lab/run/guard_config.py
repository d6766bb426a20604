"""The settings of the guard, which goes back when a task makes the model forget too fast."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

#: The usual limit of each kind: accuracy that past tasks may lose from one check to the next, and the multiple of a
#: usual interval that the prediction may reach.
USUAL_RISE = {"measured": 0.05, "predicted": 3.0}


class GuardConfig(BaseModel):
    """What is watched, how often, how sharp a rise it may have, and how often to go back in one task."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: Literal["measured", "predicted"]
    rise: float
    #: Steps from one check to the next.
    every: int = Field(50, ge=1)
    #: The most rollbacks of one task.
    rollbacks: int = Field(3, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _fill_in_the_rise(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            raise ValueError(f"`guard` must hold settings, such as guard.kind=measured, got {values!r}")
        kinds = " or ".join(USUAL_RISE)
        if values.get("kind") is None:
            given = ", ".join(f"`guard.{name}`" for name in values if name != "kind") or "none"
            raise ValueError(f"`guard.kind` must be {kinds} where a guard is set, got {given} without it")
        if values.get("rise") is None and values["kind"] in tuple(USUAL_RISE):
            return {**values, "rise": USUAL_RISE[values["kind"]]}
        return values

    @model_validator(mode="after")
    def _check_rise(self) -> "GuardConfig":
        if self.kind == "measured" and not 0 < self.rise < 1:
            raise ValueError(f"`guard.rise` must be in (0, 1), a loss of accuracy, where measured, got {self.rise:g}")
        if self.kind == "predicted" and not self.rise > 1:
            raise ValueError(f"`guard.rise` must be above 1, a multiple, where predicted, got {self.rise:g}")
        return self
