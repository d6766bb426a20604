"""Short runs of methods: a few tasks with something to learn and to forget, and a loop that can stop anywhere."""

import io
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sfao.lab.data.dataset import Dataset
from sfao.lab.methods import METHODS, Method, Training
from sfao.lab.models import build_model
from sfao.lab.streams.seeding import make_generator
from sfao.lab.streams.split import split
from sfao.lab.streams.stream import Stream

SHAPES = {"mlp": (1, 3, 4), "cnn": (2, 8, 8)}
SIZES: dict[str, dict[str, int]] = {"mlp": {"hidden": 10}, "cnn": {"fc": 8}}


def dataset(shape: tuple[int, ...] = (1, 3, 4)) -> Dataset:
    """Images of six classes, each around a pattern of its own."""
    generator = torch.Generator().manual_seed(1)
    patterns = torch.randint(40, 216, (6, *shape), generator=generator)

    def images(count: int) -> tuple[Tensor, Tensor]:
        labels = torch.arange(6).repeat(count)
        noise = torch.randint(-40, 41, (len(labels), *shape), generator=generator)
        return (patterns[labels] + noise).clamp(0, 255).to(torch.uint8), labels

    channels = shape[0]
    mean, std = (0.5, 0.4)[:channels], (0.2, 0.3)[:channels]
    return Dataset("patterns", *images(20), *images(5), classes=6, mean=mean, std=std)


def stream(scenario: str = "domain", model: str = "mlp", tasks: int = 3) -> Stream:
    """Three tasks of two classes, 40 training examples each; or two of three classes."""
    return split(dataset(SHAPES[model]), tasks=tasks, scenario=scenario)


def make_training(**changes: Any) -> Training:
    usual = {"lr": 0.05, "momentum": 0.0, "momentum_form": "heavy_ball", "weight_decay": 0.0, "batch_size": 8}
    return Training(**{**usual, "seed": 3, **changes})


def make(name: str, tasks: Stream, options: Any = None, model: str = "mlp", seed: int = 0, **changes: Any) -> Method:
    network = build_model(model, tasks.input_shape, tasks.outputs, seed, **SIZES[model])
    kind = METHODS[name]
    return kind(network, make_training(**changes), kind.Options(**(options or {})))


class Event(NamedTuple):
    """A call of the loop: begin, step or end, in the task of this number."""

    what: str
    number: int
    arguments: tuple[Any, ...]

    def __call__(self, method: Method) -> None:
        if self.what == "begin":
            method.begin_task(*self.arguments)
        elif self.what == "step":
            assert torch.isfinite(method.step(*self.arguments))
        else:
            method.end_task(*self.arguments, make_generator(self.number, "end"))


#: The number of steps and of events of a task: 40 examples in batches of 8.
STEPS = 5
EVENTS = STEPS + 2


def events(tasks: Stream) -> list[Event]:
    """The calls of the loop, in order: begin, five steps, end, for every task."""
    found = []
    for number, task in enumerate(tasks):
        found.append(Event("begin", number, (number, task)))
        for inputs, targets in task.train.batches(8, make_generator(number, "test")):
            found.append(Event("step", number, (inputs, targets, task.outputs)))
        found.append(Event("end", number, (number, task)))
    return found


def play(method: Method, some: list[Event]) -> Method:
    for event in some:
        event(method)
    return method


def learn(method: Method, tasks: Stream) -> Method:
    return play(method, events(tasks))


def weights(owner: Method | nn.Module) -> Tensor:
    """The parameters of a model, or of that of a method."""
    model = owner if isinstance(owner, nn.Module) else owner.model
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def gradient(model: nn.Module) -> Tensor:
    """The update that a step left in `.grad`."""
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def save(method: Method) -> Any:
    file = io.BytesIO()
    torch.save({"model": method.model.state_dict(), "method": method.state_dict()}, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def resume(method: Method, other: Method) -> Method:
    """Let another method go on from the state of this one."""
    state = save(method)
    other.model.load_state_dict(state["model"])
    other.load_state_dict(state["method"])
    return other
