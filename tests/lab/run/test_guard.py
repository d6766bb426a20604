"""The guard: it goes back where forgetting rises sharply, and changes nothing where it does not."""

import json

import pytest
import torch

from sfao.lab.methods import METHODS
from sfao.lab.methods.method import Method
from sfao.lab.run.config import configure
from sfao.lab.run.errors import ConfigError, Interrupted
from sfao.lab.run.guard import Guard
from sfao.lab.run.loop import execute
from sfao.lab.run.record import describe_rollback, load_record
from tests.lab.methods.scenarios import set_scenario

#: Two tasks of 40 steps, with a rate at which the second one overwrites the first.
FAST = {"epochs": 1, "model.hidden": 16, "tasks": 2, "batch_size": 40, "lr": 0.5, "validation": 0.2}
MEASURED = {"guard.kind": "measured", "guard.rise": 0.05, "guard.every": 15}
#: A gate that lets some of everything through.
LENIENT = {"options.accept_above": 0.1, "options.discard_below": -1.0}
GUARDED = [name for name, method in METHODS.items() if not method.trains_on_all_tasks]


def config(method="sgd", **settings):
    return configure("split-mnist-5k", method, settings={**FAST, **set_scenario(method), **settings})


def test_a_sharp_rise_is_undone_and_the_rest_of_the_task_learnt_more_carefully(tmp_path):
    free, guarded = execute(config(), tmp_path / "free"), execute(config(**MEASURED), tmp_path / "guarded")
    assert free.rollbacks == []
    first = guarded.rollbacks[0]
    assert {name: first[name] for name in ("task", "step", "from", "to", "tightened")} == {
        "task": 1, "step": 55, "from": 55, "to": 40, "tightened": "lr 0.5 -> 0.25",
    }  # fmt: skip
    assert first["values"]["now"] - first["values"]["before"] > first["values"]["limit"] == 0.05
    assert first["reason"].startswith("forgetting rose from 0.000 to 0.")
    assert guarded.steps == free.steps == 80  # those that count
    assert guarded.accuracy_matrix[0] == free.accuracy_matrix[0]
    assert guarded.metrics["average_forgetting"] < free.metrics["average_forgetting"]
    assert load_record(tmp_path / "guarded") == guarded


def test_each_rollback_is_made_of_all_steps_before_and_tightens_further(tmp_path):
    record = execute(config(**MEASURED, **{"guard.rollbacks": 4}), tmp_path / "run")
    rates = [float(rollback["tightened"].split("-> ")[1]) for rollback in record.rollbacks]
    assert len(rates) > 1
    assert rates == [0.5 / 2 ** (number + 1) for number in range(len(rates))]
    undone = 0
    for rollback in record.rollbacks:
        assert rollback["step"] == rollback["from"] + undone
        undone += rollback["from"] - rollback["to"]


def test_a_rollback_undoes_the_telemetry_of_its_steps(tmp_path):
    record = execute(config(**MEASURED), tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "steps.jsonl").read_text().splitlines()]
    assert record.rollbacks
    assert [line["step"] for line in lines] == [20, 40, 60, 80]


def test_the_next_task_is_learnt_at_the_full_rate_again(tmp_path, monkeypatch):
    rates = []
    monkeypatch.setattr(
        METHODS["sgd"], "begin_task", lambda self, *task: rates.append(self.optimizer.param_groups[0]["lr"])
    )
    record = execute(config(tasks=5, batch_size=80, **{**MEASURED, "guard.every": 4}), tmp_path / "run")
    assert {rollback["task"] for rollback in record.rollbacks} >= {1, 2}
    assert rates == [0.5] * 5


@pytest.mark.usefixtures("_small_digits")
@pytest.mark.parametrize("method", [name for name in GUARDED if name != "drift-bound"])  # evaluation projects weights
def test_a_guard_that_finds_nothing_changes_nothing(tmp_path, method):
    free = execute(config(method, lr=0.05), tmp_path / "free")
    guarded = execute(config(method, lr=0.05, **{**MEASURED, "guard.rise": 0.99}), tmp_path / "guarded")
    assert guarded.rollbacks == []
    assert guarded.weights_sha256 == free.weights_sha256
    assert guarded.decisions == free.decisions


@pytest.mark.usefixtures("_small_digits")
@pytest.mark.parametrize("method", GUARDED)
def test_going_back_restores_every_bit_of_the_method(tmp_path, monkeypatch, method):
    """Where nothing is tightened, the steps that follow are the same again, and so is the end of the run."""
    settings = {"lr": 0.05, "momentum": 0.5}
    free = execute(config(method, **settings), tmp_path / "free")
    accuracies = iter(range(9, 0, -1))  # a sharp rise at every look
    monkeypatch.setattr(Guard, "_measure", lambda self, tasks: [next(accuracies) / 9] * tasks)
    monkeypatch.setattr(Method, "halve_lr", lambda self: "nothing")
    guarded = execute(config(method, **settings, **{**MEASURED, "guard.rollbacks": 2}), tmp_path / "guarded")
    assert [rollback["from"] - rollback["to"] for rollback in guarded.rollbacks] == [15, 15]
    for name in ("weights_sha256", "accuracy_matrix", "decisions", "memory_bytes", "steps"):
        assert getattr(guarded, name) == getattr(free, name)
    assert (tmp_path / "guarded" / "steps.jsonl").read_text() == (tmp_path / "free" / "steps.jsonl").read_text()


class StopAt:
    """Says stop after so many steps, of which those before a rollback are counted too."""

    def __init__(self, step):
        self.left = step

    def __call__(self):
        self.left -= 1
        return self.left <= 0


#: The steps at which runs that go back are stopped, and those runs, each with two of the steps.
STOPS = (3, 40, 41, 54, 58, 75)
GUARDED = {
    "sgd": ("sgd", MEASURED, (3, 40)),
    "drift-bound": ("drift-bound", MEASURED | {"guard.rise": 0.001}, (41, 54)),
    "sfao": ("sfao", MEASURED | LENIENT, (3, 58)),
    "agem": ("agem", MEASURED, (41, 75)),
}


@pytest.mark.parametrize(
    ("method", "guard", "stops"),
    [
        *(pytest.param(*case, id=name) for name, case in GUARDED.items()),
        *(
            pytest.param(method, guard, STOPS, id=f"{name}, every stop", marks=pytest.mark.soak)
            for name, (method, guard, _) in GUARDED.items()
        ),
    ],
)
def test_stopped_anywhere_a_guarded_run_ends_bit_for_bit_the_same(tmp_path, method, guard, stops):
    whole = execute(config(method, **guard), tmp_path / "whole")
    assert whole.rollbacks
    for stop in stops:
        folder = tmp_path / str(stop)
        for step in (stop, 2):  # and once more, two steps later
            with pytest.raises(Interrupted):
                execute(config(method, **guard), folder, resume=True, stopping=StopAt(step))
        record = execute(config(method, **guard), folder, resume=True)
        for name in ("weights_sha256", "accuracy_matrix", "metrics", "decisions", "rollbacks", "warnings", "steps"):
            assert getattr(record, name) == getattr(whole, name), (stop, name)
        assert (folder / "steps.jsonl").read_text() == (tmp_path / "whole" / "steps.jsonl").read_text()


def test_a_guarded_task_that_diverges_goes_back_too(tmp_path, monkeypatch):
    spoil_step(monkeypatch, 50)
    record = execute(config(lr=0.05, **{**MEASURED, "guard.rise": 0.9, "guard.every": 5}), tmp_path / "run")
    assert record.status == "done"
    (rollback,) = record.rollbacks
    assert (rollback["from"], rollback["to"]) == (50, 45)
    assert rollback["reason"] == "the model gives outputs that are no numbers on task '0-4'"


def test_the_first_task_is_not_guarded(tmp_path, monkeypatch):
    spoil_step(monkeypatch, 10)
    record = execute(config(lr=0.05, **{**MEASURED, "guard.every": 5}), tmp_path / "run")
    assert (record.status, record.rollbacks) == ("diverged", [])


def spoil_step(monkeypatch, step):
    """Make the loss of one step of the run infinite, once."""
    true_loss, steps = Method.loss, iter(range(1, 10_000))

    def loss(self, *batch):
        return true_loss(self, *batch) * (torch.inf if next(steps) == step else 1)

    monkeypatch.setattr(Method, "loss", loss)


def test_a_task_that_has_used_its_rollbacks_goes_on_unguarded_and_says_so(tmp_path):
    record = execute(config(**{**MEASURED, "guard.rise": 0.001, "guard.rollbacks": 2}), tmp_path / "run")
    assert record.status == "done"
    assert len(record.rollbacks) == 2
    last = record.rollbacks[-1]["to"]
    assert record.warnings == [f"guard: task 2 used its last rollback; unguarded from step {last} on"]


def test_a_rollback_in_words(tmp_path):
    record = execute(config(**MEASURED), tmp_path / "run")
    assert describe_rollback(record.rollbacks[0]).startswith("rollback in task 2, from step 55 to 40: forgetting rose")
    del record.rollbacks[0]["tightened"]
    record.save(tmp_path / "run")
    with pytest.raises(ValueError, match=r"`rollbacks\.0\.tightened`: Field required"):
        load_record(tmp_path / "run")


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("sgd", {"guard.every": 5}, "`guard.kind`: field required"),
        ("sgd", {"guard": "measured"}, "`guard`: input should be a valid dictionary.*, got 'measured'"),
        ("sgd", {"guard.kind": "predicted"}, "`guard.kind`: input should be 'measured', got 'predicted'"),
        ("sgd", {"guard.kind": "measured", "validation": 0}, "`validation` must be above 0, got 0"),
        ("joint", {"guard.kind": "measured"}, "`guard` must be left out with joint"),
        ("sgd", {"guard.kind": "measured", "guard.rise": 1}, r"`guard.rise`: input should be less than 1, got 1"),
        ("sgd", {"guard.kind": "measured", "guard.evry": 5}, r"unknown setting `guard.evry` \(did you mean 'every'"),
        ("sgd", {"guard.kind": "measured", "guard.rollbacks": 0}, "`guard.rollbacks`: input should be greater than"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_in_a_line(method, settings, message):
    with pytest.raises(ConfigError, match=message) as caught:
        config(method, **settings)
    assert "\n" not in str(caught.value)


def test_the_settings_of_a_guard_are_complete_and_can_be_given_back(tmp_path):
    execute(config(**{"guard.kind": "measured"}), tmp_path / "run")
    again = configure("split-mnist-5k", "sgd", file=tmp_path / "run" / "config.yaml")
    assert again == config(**{"guard.kind": "measured"})
    assert again.guard.model_dump() == {"kind": "measured", "rise": 0.05, "every": 50, "rollbacks": 3}
    assert config().guard is None
