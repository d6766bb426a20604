"""All tasks so far, together: what a method without forgetting could reach."""

from sfao.methods.method import Method


class Joint(Method):
    """Trains on every task so far at each new task; it stores all data, so it is a bound and no competitor."""

    name = "joint"
    revisits = True
    stores_data = True
