"""A small stream, and runs over it that can be cut anywhere: what the tests of the methods share."""

import io
from typing import Any

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


def dataset(shape: tuple[int, ...] = (1, 3, 4), classes: int = 6, train: int = 20, test: int = 5) -> Dataset:
    """Images around one pattern per class, so that there is something to learn and to forget."""
    generator = torch.Generator().manual_seed(1)
    patterns = torch.randint(40, 216, (classes, *shape), generator=generator)

    def images(labels: Tensor) -> Tensor:
        noise = torch.randint(-40, 41, (len(labels), *shape), generator=generator)
        return (patterns[labels] + noise).clamp(0, 255).to(torch.uint8)

    train_labels, test_labels = (torch.arange(classes).repeat(count) for count in (train, test))
    return Dataset(
        name="patterns",
        train_images=images(train_labels),
        train_labels=train_labels,
        test_images=images(test_labels),
        test_labels=test_labels,
        classes=classes,
        mean=(0.5, 0.4)[: shape[0]],
        std=(0.2, 0.3)[: shape[0]],
    )


def stream(scenario: str = "domain", model: str = "mlp") -> Stream:
    """Three tasks of two classes, 40 training examples each."""
    return split(dataset(SHAPES[model]), tasks=3, scenario=scenario)


def method(
    name: str,
    tasks: Stream,
    options: dict[str, Any] | None = None,
    *,
    model: str = "mlp",
    seed: int = 0,
    **training: Any,
) -> Method:
    defaults = {
        "lr": 0.05,
        "momentum": 0.0,
        "momentum_form": "heavy_ball",
        "weight_decay": 0.0,
        "batch_size": 8,
        "seed": 0,
    }
    network = build_model(model, tasks.input_shape, tasks.outputs, seed, **SIZES[model])
    kind = METHODS[name]
    return kind(network, Training(**{**defaults, **training}), kind.Options(**(options or {})))


Event = tuple[str, int, tuple[Any, ...]]
STEPS = 5  # a task: 40 examples in batches of 8


def events(tasks: Stream) -> list[Event]:
    """The calls of the loop, in order: begin, five steps, end, for every task."""
    found: list[Event] = []
    for number, task in enumerate(tasks):
        found.append(("begin", number, (number, task)))
        for x, y in task.train.batches(8, make_generator(number, "test")):
            found.append(("step", number, (x, y, task.outputs)))
        found.append(("end", number, (number, task)))
    return found


def play(run: Method, some: list[Event]) -> None:
    for what, number, arguments in some:
        if what == "begin":
            run.begin_task(*arguments)
        elif what == "step":
            assert torch.isfinite(run.step(*arguments))
        else:
            run.end_task(*arguments, make_generator(number, "end"))


def weights(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def gradient(model: nn.Module) -> Tensor:
    """The update that a step left in `.grad`."""
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


#: In the first task, just before and just after its end, in the middle of the second and of the third.
CUTS = {"first task": 3, "before the end": 6, "at the boundary": 7, "second task": 11, "third task": 18}
#: Runs that were never cut, each made once.
_wholes: dict[tuple[str, str, str, str], Method] = {}


def check_resumed(name: str, options: dict[str, Any], scenario: str, model: str, cut: int) -> None:
    """A run that is saved and loaded at `cut` must end as one that was not, bit for bit."""
    tasks = stream(scenario, model)
    training = {"momentum": 0.9, "weight_decay": 0.01}
    case = (name, repr(options), scenario, model)
    if case not in _wholes:
        _wholes[case] = method(name, tasks, options, model=model, **training)
        play(_wholes[case], events(tasks))
    whole = _wholes[case]

    before = method(name, tasks, options, model=model, **training)
    play(before, events(tasks)[:cut])
    file = io.BytesIO()
    torch.save({"model": before.model.state_dict(), "method": before.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    after = method(name, tasks, options, model=model, seed=7, **training)
    after.model.load_state_dict(saved["model"])
    after.load_state_dict(saved["method"])
    random = torch.get_rng_state()
    play(after, events(tasks)[cut:])
    assert torch.equal(torch.get_rng_state(), random)  # torch's global generator is never used

    assert torch.equal(weights(after.model), weights(whole.model))
    assert after.memory_bytes == whole.memory_bytes > 0
    assert after.decisions == whole.decisions
    assert after.concerns() == whole.concerns()


def check_left_alone(run: Method, tasks: Stream) -> None:
    """Ending a task may change neither weights, modes, hooks nor torch's generator."""
    play(run, events(tasks)[:-1])
    run.model.train()
    before, random = weights(run.model), torch.get_rng_state()
    play(run, events(tasks)[-1:])
    assert torch.equal(weights(run.model), before)
    assert torch.equal(torch.get_rng_state(), random)
    for module in run.model.modules():
        assert module.training
        assert not module._forward_pre_hooks
        assert not module._forward_hooks
