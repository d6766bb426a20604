"""A method that takes its time, so that a test can do something to a run while it goes on."""

import time

from sfao.lab.methods import Method


class Slow(Method):
    """Gradient descent with a nap at every step."""

    def step(self, *batch):
        time.sleep(0.004)
        return super().step(*batch)
