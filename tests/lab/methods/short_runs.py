"""Runs of a second: a stream of small images with something to learn, and a loop that can stop anywhere."""

import io
from itertools import pairwise, product

import torch

from sfao.lab.data.dataset import Dataset
from sfao.lab.methods import METHODS, Training
from sfao.lab.methods.fisher import exact_fisher
from sfao.lab.methods.method import Method, TaskView
from sfao.lab.models import build_model
from sfao.lab.streams.split import split
from sfao.lab.streams.stream import Stream

SIZES = {"mlp": {"hidden": 8}, "cnn": {"fc": 6}}


def stream(scenario: str = "domain", per_class: int = 12) -> Stream:
    """Three tasks of two classes; an image is the pattern of its class under noise."""
    generator = torch.Generator().manual_seed(5)
    patterns = torch.randint(0, 160, (6, 1, 4, 4), generator=generator)

    def images(count):
        labels = torch.arange(6).repeat(count)
        noise = torch.randint(0, 96, (len(labels), 1, 4, 4), generator=generator)
        return (patterns[labels] + noise).to(torch.uint8), labels

    train, test = images(per_class), images(4)
    data = Dataset("small", *train, *test, classes=6, mean=(0.4,), std=(0.3,), complete=True, embedded=False)
    return split(data, tasks=3, scenario=scenario)


def make_training(**changes) -> Training:
    usual = {"lr": 0.1, "momentum": 0.0, "momentum_form": "heavy_ball", "weight_decay": 0.0}
    return Training(**{**usual, "batch_size": 5, "seed": 3, **changes})


def make(name: str, tasks: Stream, options=None, model: str = "mlp", seed: int = 0, **changes) -> Method:
    method = METHODS[name]
    network = build_model(model, tasks.input_shape, tasks.outputs, seed, **SIZES[model])
    return method(network, make_training(**changes), method.Options(**(options or {})))


def events(tasks: Stream, epochs: int = 2):
    """Everything a loop asks of a method, as functions in their order."""

    def begin(number, task):
        return lambda method: method.begin_task(number, task)

    def step(task, batch):
        return lambda method: method.step(*batch, task.outputs)

    def end(number, task):
        return lambda method: method.end_task(number, task, torch.Generator().manual_seed(number))

    found = []
    for number, task in enumerate(tasks):
        found.append(begin(number, task))
        order = torch.Generator().manual_seed(100 + number)
        found += [step(task, batch) for _ in range(epochs) for batch in task.train.batches(5, order)]
        found.append(end(number, task))
    return found


def learn(method: Method, tasks: Stream) -> Method:
    for event in events(tasks):
        event(method)
    return method


def way_from_the_first_task(name: str, options, tasks: Stream, model: str) -> float:
    """The distance that the later tasks moved the parameters, weighted with the first task's Fisher information."""
    method, asked = make(name, tasks, options, model), events(tasks)
    a_task, first = len(asked) // 3, tasks.tasks[0]
    for event in asked[:a_task]:
        event(method)
    parameters = list(method.model.parameters())
    start = [parameter.detach().clone() for parameter in parameters]
    fisher = exact_fisher(TaskView(method.model, first.outputs), first.train.batches(100), parameters)
    for event in asked[a_task:]:
        event(method)
    ways = (parameter.detach() - old for parameter, old in zip(parameters, start, strict=True))
    return sum(float((information * way**2).sum()) for information, way in zip(fisher, ways, strict=True))


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def weights(method: Method) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in method.model.parameters()])


def assert_resumes_anywhere(name: str, tasks: Stream, options, model: str = "mlp", **changes) -> None:
    """A run that goes on from its state again and again is the one that never stopped, bit for bit.

    Nor does saving change the run that is saved.
    """
    asked = events(tasks)
    a_task = len(asked) // 3
    whole, saved, resumed = (make(name, tasks, options, model, **changes) for _ in range(3))
    # In the first task, before, at and after its end, in the second, and just before the very end.
    stops = (0, 1, 4, a_task - 1, a_task, a_task + 1, a_task + 4, 2 * a_task, 2 * a_task + 3, len(asked) - 1)
    for start, stop in pairwise((*stops, len(asked))):
        save(saved)
        resumed = resume(resumed, make(name, tasks, options, model, seed=1, **changes))
        for event, method in product(asked[start:stop], (whole, saved, resumed)):
            event(method)
        for method in (saved, resumed):
            assert torch.equal(weights(method), weights(whole)), stop
            assert method.decisions == whole.decisions
            assert method.concerns() == whole.concerns()
    assert saved.memory_bytes == resumed.memory_bytes == whole.memory_bytes


def resume(method: Method, other: Method) -> Method:
    """Let another method go on from the state of this one."""
    state = save(method)
    other.model.load_state_dict(state["model"])
    other.load_state_dict(state["method"])
    return other


def save(method: Method):
    return through_a_file({"model": method.model.state_dict(), "method": method.state_dict()})
