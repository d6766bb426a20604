"""Every method: with every optimizer, in every scenario; resumed anywhere; with its options, and without effect."""

import pytest
import torch
from pydantic import ValidationError

from sfao.lab.methods import METHODS
from sfao.lab.methods.optimizers import OPTIMIZERS
from sfao.lab.run.config import configure
from sfao.lab.run.errors import ConfigError
from sfao.lab.run.loop import execute
from tests.lab.methods.scenarios import set_scenario
from tests.lab.methods.short_runs import EVENTS, events, learn, make, play, resume, stream, weights

SCENARIOS = ("domain", "task", "class")
#: Options with which methods act on streams as short as these.
LIVELY = {
    "ewc": {"strength": 30.0},
    "si": {"strength": 30.0},
    "sfao": {"accept_above": 0.5, "discard_below": -0.2, "samples": 3, "capacity": 6},
    "drift-bound": {"tolerance": 0.02, "every": 3},
    "gpm": {"threshold": 0.9, "threshold_increase": 0.02, "examples": 20},
    "sgp": {"threshold": 0.9, "examples": 20},
    "trgp": {"threshold": 0.8, "examples": 20, "trust": 0.05},
    "ogd": {"directions": 9},
    "agem": {"examples": 12, "batch": 5},
    "gem": {"examples": 12},
    "er": {"examples": 12},
    "derpp": {"examples": 12},
}
#: Methods that are the optimizer alone in the first task.
PLAIN_AT_FIRST = [name for name in METHODS if name not in ("sgd", "er", "derpp")]


def lively(name, optimizer="sgd"):
    is_penalty = name in ("ewc", "si")
    return {**LIVELY.get(name, {}), **({"step": "gradient"} if is_penalty and optimizer.startswith("adam") else {})}


def settings(optimizer):
    return {"optimizer": optimizer, "lr": 0.005 if optimizer.startswith("adam") else 0.05}


def accuracy(method, tasks):
    found = []
    for number, task in enumerate(tasks):
        inputs, targets = next(task.test.batches(100))
        with method.model_for_task(number) as model, torch.no_grad():
            found.append(float((model(inputs)[:, task.outputs].argmax(1) == targets).float().mean()))
    return sum(found) / len(found)


ALLOWED = [
    (name, optimizer, scenario)
    for name, method in METHODS.items()
    for optimizer in method.optimizers
    for scenario in (("task",) if method.needs_task else SCENARIOS)
]


@pytest.mark.parametrize(("name", "optimizer", "scenario"), ALLOWED)
def test_every_method_learns_two_tasks_with_every_optimizer(name, optimizer, scenario):
    tasks = stream(scenario, tasks=2)
    method = make(name, tasks, lively(name, optimizer), weight_decay=0.01, **settings(optimizer))
    before = weights(method)
    for number, task in enumerate(tasks):
        method.begin_task(number, task)
        for _ in range(3):
            for inputs, targets in task.train.batches(8, torch.Generator().manual_seed(number)):
                assert torch.isfinite(method.step(inputs, targets, task.outputs))
        method.end_task(number, task, torch.Generator().manual_seed(number))
    assert weights(method).isfinite().all()
    assert (weights(method) - before).norm() > 0.05
    assert accuracy(method, tasks) > (0.25 if scenario == "class" else 0.5)  # chance: 1/6, 1/3
    assert all(isinstance(line, str) for line in method.concerns())


#: Other options whose state or draws differ from those above.
MORE = [
    ("sgd", "domain", {"fresh": True}),
    ("ewc", "domain", {"strength": 30.0, "variant": "online", "decay": 0.5, "fisher": "batch"}),
    ("ewc", "domain", {"strength": 1.0, "step": "gradient", "fisher_samples": 9}),
    ("si", "domain", {"strength": 1.0, "step": "gradient"}),
    ("ogd", "domain", {"directions": None, "target": "loss"}),
    ("ogd", "task", {"directions": 9, "capacity": 12, "storage": "factored"}),
    ("ogd", "task", {"directions": 5, "granularity": "layer"}),
    ("sfao", "task", {**LIVELY["sfao"], "storage": "factored", "target": "logit", "eviction": "reservoir"}),
    ("sfao", "domain", {**LIVELY["sfao"], "granularity": "global", "projection": "sequential", "cosine": "absolute"}),
    ("sfao", "domain", {**LIVELY["sfao"], "projection": "cone", "memory_dtype": "bfloat16", "capacity": 40}),
]
RESUMED = [
    *((name, scenario, lively(name), "sgd", "mlp") for name, o, scenario in ALLOWED if o == "sgd"),
    *((name, "task", lively(name), "sgd", "cnn") for name in METHODS),
    *((name, "task", lively(name, o), o, "mlp") for name in METHODS for o in OPTIMIZERS[1:]),
    *((name, scenario, options, "sgd", "mlp") for name, scenario, options in MORE),
]


@pytest.mark.parametrize(("name", "scenario", "options", "optimizer", "model"), RESUMED)
def test_a_run_that_is_saved_and_resumed_again_and_again_ends_the_same(name, scenario, options, optimizer, model):
    """To the bit, and saving does not change the run that is saved."""
    tasks = stream(scenario, model)
    training = {**settings(optimizer), "weight_decay": 0.01}
    if optimizer == "sgd":
        training |= {"momentum": 0.9, "momentum_form": "ema" if scenario == "class" else "heavy_ball"}
    whole, saved, resumed = (make(name, tasks, options, model, **training) for _ in range(3))
    resumes = 0
    for number, event in enumerate(events(tasks)):
        for method in (whole, saved, resumed):
            event(method)
        if whole.can_checkpoint and number % 3 != 1:
            resumed = resume(resumed, make(name, tasks, options, model, seed=7, **training))
            resume(saved, make(name, tasks, options, model, seed=7, **training))
            resumes += 1
    assert resumes > EVENTS
    for method in (saved, resumed):
        assert torch.equal(weights(method), weights(whole))
        assert method.decisions == whole.decisions
        assert method.memory_bytes == whole.memory_bytes
        assert method.directions == whole.directions
        assert method.concerns() == whole.concerns()
    if name != "sgd":
        assert whole.memory_bytes > 0


@pytest.mark.parametrize("name", METHODS)
def test_ending_a_task_changes_neither_weights_modes_hooks_nor_torch_s_generator(name):
    tasks = stream("task")
    method = make(name, tasks, lively(name))
    play(method, events(tasks)[:-1])
    hooks = [(len(module._forward_hooks), len(module._forward_pre_hooks)) for module in method.model.modules()]
    before, random = weights(method), torch.get_rng_state()
    play(method, events(tasks)[-1:])
    assert torch.allclose(weights(method), before, atol=0 if name != "drift-bound" else 1)  # a bound projects
    assert torch.equal(torch.get_rng_state(), random)
    assert all(module.training for module in method.model.modules())
    assert hooks == [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in method.model.modules()]
    assert not method.optimizer.state  # the optimizer starts anew


@pytest.mark.parametrize("name", PLAIN_AT_FIRST)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_first_task_is_the_optimizer_alone(name, optimizer):
    tasks = stream("task")
    runs = [make(each, tasks, lively(each, optimizer), **settings(optimizer)) for each in (name, "sgd")]
    for run in runs:
        play(run, events(tasks)[: EVENTS - 1])
    assert torch.equal(*map(weights, runs))


@pytest.mark.parametrize("name", METHODS)
def test_momentum_is_sgd_with_heavy_ball_momentum(name):
    tasks = stream("task")
    runs = [make(name, tasks, lively(name), optimizer="momentum"), make(name, tasks, lively(name), momentum=0.9)]
    for run in runs:
        learn(run, tasks)
    assert torch.equal(*map(weights, runs))


@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, {}) for name in METHODS), ("sfao", {"storage": "factored"}), ("ogd", {"target": "loss"})],
)
def test_the_order_of_channels_in_memory_changes_nothing(name, options):
    """As the laboratory lays weights out on a GPU."""
    tasks = stream(set_scenario(name).get("scenario", "domain"), "cnn")
    plain, turned = (make(name, tasks, {**lively(name), **options}, "cnn") for _ in range(2))
    for parameter in turned.model.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    assert any(not parameter.is_contiguous() for parameter in turned.model.parameters())
    learn(plain, tasks)
    learn(turned, tasks)
    torch.testing.assert_close(weights(turned), weights(plain), rtol=1e-3, atol=1e-4)


def test_with_adamw_a_bound_forgets_far_less_than_adamw_alone(tmp_path):
    found = {}
    for method in ("sgd", "drift-bound"):
        given = {"optimizer": "adamw", "fraction": 0.3, "epochs": 3}
        config = configure("split-mnist-5k", method, settings={**given, "lr": 0.001})
        found[method] = execute(config, tmp_path / method).metrics
    assert found["drift-bound"]["average_accuracy"] > found["sgd"]["average_accuracy"] + 0.05
    assert found["drift-bound"]["average_forgetting"] < found["sgd"]["average_forgetting"] / 2


# -- Settings --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_every_option_has_a_meaning(name):
    for field in METHODS[name].Options.model_fields.values():
        assert field.description
        assert field.description.endswith(".")


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *(("drift-bound", wrong) for wrong in ({"tolerance": 0}, {"tolerance": 1.5}, {"every": 0}, {"clip": 0})),
        *(("ewc", wrong) for wrong in ({"strength": -1}, {"strength": float("inf")}, {"decay": 2}, {"fisher": "x"})),
        *(("ewc", wrong) for wrong in ({"fisher_samples": 0}, {"lr": 1})),
        *(("gpm", wrong) for wrong in ({"threshold": 0}, {"threshold": (0.9, 2)}, {"examples": 0})),
        *(("agem", wrong) for wrong in ({"examples": 0}, {"batch": 0}, {"margin": 0.5})),
        *(("gem", wrong) for wrong in ({"examples": 0}, {"margin": -1}, {"batch": 5})),
        *(("ogd", wrong) for wrong in ({"directions": 0}, {"target": "logits"}, {"capacity": 0})),
        ("sgd", {"fresh": "sometimes"}),
        ("trgp", {"trust": 2}),
    ],
)
def test_bad_options(name, wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        METHODS[name].Options(**wrong)


@pytest.mark.parametrize(
    ("method", "given", "rule"),
    [
        ("trgp", {"scenario": "class"}, "`scenario` must be task with trgp, which must be told the task"),
        ("sgd", {"optimizer": "lion"}, "`optimizer`: input should be 'sgd', 'momentum', 'adam' or 'adamw', got 'lion'"),
        ("sgd", {"optimizer": "adam", "momentum": 0.5}, "`momentum` must be 0 with optimizer adam, which has its own"),
        (
            "sgd",
            {"optimizer": "momentum", "momentum": 0.5, "momentum_form": "ema"},
            "`momentum_form` must be heavy_ball",
        ),
        ("ewc", {"optimizer": "adamw"}, "`options.step` must be gradient with optimizer adamw: a proximal step of ewc"),
        (
            "si",
            {"optimizer": "adam"},
            "`options.step` must be gradient with optimizer adam: a proximal step of si needs",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_one_line(method, given, rule):
    with pytest.raises(ConfigError) as caught:
        configure("split-mnist-5k", method, settings=given)
    assert str(caught.value).startswith(rule)
    assert "\n" not in str(caught.value)


def test_a_method_may_refuse_an_optimizer(monkeypatch):
    monkeypatch.setattr(METHODS["gem"], "optimizers", ("sgd", "momentum"))
    with pytest.raises(ConfigError, match="`optimizer` must be one of sgd, momentum with gem, got 'adam'"):
        configure("split-mnist-5k", "gem", settings={"optimizer": "adam"})


def test_the_optimizer_decides_the_momentum_that_is_not_given():
    assert configure("split-mnist-5k", "sgd", settings={"optimizer": "momentum"}).momentum == 0.9
    given = {"optimizer": "momentum", "momentum": 0.5}
    assert configure("split-mnist-5k", "sgd", settings=given).momentum == 0.5
    assert configure("split-mnist-5k", "sgd").momentum == 0
    adamw = configure("split-mnist-5k", "sgd", preset="paper", settings={"optimizer": "adamw"})
    assert (adamw.momentum, adamw.momentum_form) == (0, "heavy_ball")
