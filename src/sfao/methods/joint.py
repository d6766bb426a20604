"""All tasks so far, together: what a method without forgetting could reach."""

from sfao.methods.method import Method


class Joint(Method):
    """Trains on every task so far whenever a new one comes; stores all data, so it is a bound and no rival."""

    name = "joint"
    revisits = True
