"""Plain training and nothing else: what forgetting looks like."""

from pydantic import Field

from sfao.lab.methods.method import Method, MethodOptions
from sfao.lab.models import reinitialize
from sfao.lab.streams.seeding import make_generator
from sfao.lab.streams.stream import Task


class SGDOptions(MethodOptions):
    fresh: bool = Field(
        False, description="A newly initialized model for every task, as in the paper's released code on CIFAR."
    )


class SGD(Method):
    name = "sgd"
    Options = SGDOptions
    options: SGDOptions

    def begin_task(self, number: int, task: Task) -> None:
        if self.options.fresh and number > 0:
            reinitialize(self.model, make_generator(self.training.seed, f"fresh model of task {number}").initial_seed())
