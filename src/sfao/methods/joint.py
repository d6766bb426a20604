"""All tasks so far, together: what a method without forgetting could reach."""

from typing import ClassVar

from sfao.methods.method import Method


class Joint(Method):
    """Trains on every task so far whenever a new one comes; stores all data, so it is a bound and no rival."""

    name: ClassVar[str] = "joint"
    revisits: ClassVar[bool] = True
