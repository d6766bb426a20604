"""Stacked runs are the runs that they would be on their own: the same weights, but for rounding, and records."""

import json
from dataclasses import replace
from functools import partial

import pytest
import torch

from sfao.experiment.checkpoint import load_checkpoint
from sfao.experiment.compare import compare
from sfao.experiment.errors import Interrupted
from sfao.experiment.in_process import run_here
from sfao.experiment.plan import plan
from sfao.experiment.progress import Update
from sfao.experiment.run import Run
from sfao.experiment.stacked.divide import divide
from sfao.experiment.stacked.member import Member
from sfao.experiment.stacked.runner import run_stacked
from sfao.experiment.stacked.stack import Stack
from sfao.experiment.worker import Failure
from sfao.methods.sfao import SFAOMethod
from sfao.methods.stacked import STACKED, StackedMethod
from sfao.streams.benchmark import Benchmark

SPLIT, PERMUTED = "split-mnist-5k", "permuted-mnist-5k"
SMALL = {"epochs": 1, "fraction": 0.2, "model.hidden": 12}
#: A method and settings of its own, with settings of the second of three runs.
CASES = [
    ("sgd", SPLIT, {}, {}),
    ("sgd", SPLIT, {"momentum": 0.5, "weight_decay": 0.01, "batch_size": 7}, {"lr": 0.05, "momentum": 0.0}),
    ("sgd", SPLIT, {"options.fresh": True, "momentum": 0.5, "momentum_form": "ema"}, {"weight_decay": 0.1}),
    ("sgd", PERMUTED, {"scenario": "class"}, {}),
    ("sgd", SPLIT, {"validation": 0.2, "evaluate": "validation", "order": [2, 0, 1, 4, 3]}, {}),
    ("ewc", SPLIT, {}, {"options.strength": 0.0}),
    ("ewc", SPLIT, {"options.step": "gradient", "options.strength": 1.0}, {"options.strength": 3.0}),
    ("si", SPLIT, {"momentum": 0.5}, {"options.damping": 0.5}),
    ("gpm", SPLIT, {}, {"options.threshold": 0.5}),
    ("gpm", SPLIT, {"scenario": "task"}, {}),
    ("sfao", SPLIT, {}, {"options.keep": 0.3, "lr": 0.03}),
    ("sfao", SPLIT, {"scenario": "task", "momentum": 0.5}, {"options.axes": 7, "momentum": 0.0}),
    ("sfao", PERMUTED, {"scenario": "class"}, {"options.tolerance": 0.01}),
    ("sfao", SPLIT, {"options.granularity": "global"}, {"options.keep": 0.0}),
    ("sfao", SPLIT, {"model": {"name": "cnn", "fc": 8}, "batch_size": 40}, {"options.keep": 1.0}),
    ("sfao", SPLIT, {"model": {"name": "tests.experiment.stacked_models:with_batch_norm"}, "batch_size": 20}, {}),
]


@pytest.fixture(autouse=True)
def small_digits(digits, monkeypatch):
    """The digits with a ninth of their pixels."""
    few = replace(
        digits, train_images=digits.train_images[..., ::3, ::3], test_images=digits.test_images[::4, ..., ::3, ::3]
    )
    few = replace(few, test_labels=digits.test_labels[::4])
    monkeypatch.setattr(Benchmark, "load", lambda self, root=None: few)
    return few


def make_jobs(out, methods=("sgd",), seeds=3, benchmark=SPLIT, **settings):
    small = {name: value for name, value in SMALL.items() if not ("model" in settings and name == "model.hidden")}
    return plan(benchmark, methods, range(seeds), out, settings={**small, **settings})


def run_together(jobs, **how):
    said = []
    return compare(jobs, run=partial(run_stacked, say=said.append, others=run_here), **how), said


def read_steps(folder):
    return [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]


def read_everything(record):
    """What a stacked run has in common with a single one."""
    names = ("status", "accuracy_matrix", "initial_accuracy", "metrics", "decisions", "steps", "memory_bytes")
    more = ("directions", "parameters", "warnings", "error", "order", "task_names", "data", "config", "rollbacks")
    return {name: getattr(record, name) for name in (*names, *more)}


def test_a_watch_that_raises_is_no_failure_of_a_run_and_costs_no_step(tmp_path, monkeypatch):
    monkeypatch.setattr("sfao.experiment.stacked.stack.UPDATE_SECONDS", 0)
    monkeypatch.setattr("sfao.experiment.stacked.stack.TELEMETRY_EVERY", 5)
    jobs, heard = make_jobs(tmp_path / "stopped", ["sfao"], seeds=2), []

    def lose_the_terminal(job, event):
        heard.append(event)
        if isinstance(event, Update) and event.step == 25:
            raise BrokenPipeError("the terminal is gone")

    with pytest.raises(BrokenPipeError, match="the terminal is gone"):
        run_stacked(jobs, watch=lose_the_terminal)
    assert not any(isinstance(event, Failure) for event in heard)
    assert [load_checkpoint(job.folder).state["position"]["steps"] for job in jobs] == [25, 25]
    records = run_stacked(jobs, resume=True)
    at_once = run_stacked(make_jobs(tmp_path / "at once", ["sfao"], seeds=2))
    for record, expected in zip(records, at_once, strict=True):
        assert record.weights_sha256 == expected.weights_sha256


def test_the_cases_are_of_all_methods_that_can_be_stacked():
    assert {method for method, *_ in CASES} == set(STACKED)


@pytest.mark.parametrize(("method", "benchmark", "settings", "of_second"), CASES)
def test_weights_are_those_of_single_runs(tmp_path, small_digits, method, benchmark, settings, of_second):
    settings = {"fraction": 0.08, **settings}
    jobs = make_jobs(tmp_path, [method], 3, benchmark, **settings)
    jobs[1] = make_jobs(tmp_path, [method], 3, benchmark, **{**settings, **of_second})[1]
    assert len(divide(jobs).stacks) == 1, "these can share a stack"
    members = [Member(job, small_digits) for job in jobs]
    for member in members:
        member.begin(resume=False)
    while not members[0].is_ended:
        Stack(members, lambda job, event: None, lambda: False).learn()
    for job, member in zip(jobs, members, strict=True):
        alone = Run(job.config, small_digits, tmp_path / "alone")
        (tmp_path / "alone").mkdir(exist_ok=True)
        record = alone.execute()
        assert record.status == "done"
        for name, tensor in alone.model.state_dict().items():
            torch.testing.assert_close(member.model.state_dict()[name], tensor, atol=2e-6, rtol=1e-5)


def test_weights_stay_those_of_single_runs_over_many_steps(tmp_path, digits):
    jobs = plan(SPLIT, ["sgd"], [3, 8], tmp_path, settings={"epochs": 4})
    members = [Member(job, digits) for job in jobs]
    for member in members:
        member.begin(resume=False)
    Stack(members, lambda job, event: None, lambda: False).learn()
    for job, member in zip(jobs, members, strict=True):
        alone = Run(job.config, digits, tmp_path / "alone")
        (tmp_path / "alone").mkdir(exist_ok=True)

        def stop_after(run=alone, steps=member.position.steps):
            return run.position.steps >= steps

        with pytest.raises(Interrupted):
            alone.execute(stopping=stop_after)
        assert member.position.steps == alone.position.steps == 200
        for ours, theirs in zip(member.model.parameters(), alone.model.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
        for path in (tmp_path / "alone").iterdir():
            path.unlink()


def test_records_and_steps_are_those_of_single_runs_and_say_that_they_were_stacked(tmp_path):
    stacked, said = run_together(make_jobs(tmp_path / "a", ("sgd", "sfao")))
    alone = compare(make_jobs(tmp_path / "b", ("sgd", "sfao")), run=run_here)
    assert said == []
    for ours, theirs in zip(stacked, alone, strict=True):
        assert read_everything(ours) == read_everything(theirs)
        assert ours.stacked["runs"] == 3
        assert "within seed noise" in ours.stacked["note"]
        assert theirs.stacked == {}
        name = f"{ours.method}-{ours.seed}"
        mine, other = (read_steps(tmp_path / place / name) for place in "ab")
        assert [line.pop("loss") for line in mine] == pytest.approx([line.pop("loss") for line in other], abs=1e-4)
        gates = [[line.pop("gate") for line in lines] for lines in (mine, other)]
        assert mine == other
        assert mine
        for one, another in zip(*gates, strict=True):
            assert one.keys() == another.keys()
            for layer in one:
                assert one[layer] == pytest.approx(another[layer], abs=2e-4)
        assert sorted(path.name for path in (tmp_path / "a" / name).iterdir() if path.name != ".lock") == sorted(
            path.name for path in (tmp_path / "b" / name).iterdir() if path.name != ".lock"
        )


def test_what_cannot_be_stacked_is_run_on_its_own_and_named(tmp_path):
    records, said = run_together(make_jobs(tmp_path, ("sgd", "agem"), 2))
    assert [bool(record.stacked) for record in records] == [True, True, False, False]
    assert all(record.status == "done" for record in records)
    assert said == [f"not stacked: agem-0, agem-1: agem has no stacked form ({', '.join(STACKED)} have)"]


def test_models_that_draw_random_numbers_are_not_stacked(tmp_path):
    jobs = make_jobs(tmp_path, seeds=2, model={"name": "tests.experiment.stacked_models:with_dropout"})
    records, said = run_together(jobs)
    assert [record.stacked for record in records] == [{}, {}]
    assert said == [
        "not stacked: sgd-0, sgd-1: the model draws random numbers (Dropout '2'), which the runs of a stack would share"
    ]


def test_tasks_in_different_orders_are_learnt_in_stacks_of_their_own(tmp_path):
    stacked, _ = run_together(make_jobs(tmp_path / "a", seeds=4, order="random"))
    alone = compare(make_jobs(tmp_path / "b", seeds=4, order="random"), run=run_here)
    assert [record.accuracy_matrix for record in stacked] == [record.accuracy_matrix for record in alone]


@pytest.mark.parametrize("method", ["sgd", "sfao"])
def test_a_run_that_diverges_ends_alone_as_it_would_have_without_the_others(tmp_path, method):
    def make(place):
        jobs = make_jobs(tmp_path / place, [method])
        wild = make_jobs(tmp_path / place, [method], lr=3e36)
        return [jobs[0], wild[1], jobs[2]]

    stacked, _ = run_together(make("a"))
    alone = compare(make("b"), run=run_here)
    assert [record.status for record in stacked] == ["done", "diverged", "done"]
    for ours, theirs in zip(stacked, alone, strict=True):
        assert read_everything(ours) == read_everything(theirs)
        assert len(read_steps(tmp_path / "a" / f"{method}-{ours.seed}")) == len(
            read_steps(tmp_path / "b" / f"{method}-{ours.seed}")
        )


@pytest.mark.parametrize("goes_on", [run_stacked, run_here])
# After 3 of 10 steps of the first task, between the ends of that task of two runs, in the second task.
@pytest.mark.parametrize(("method", "stops_after"), [("si", 3), ("sfao", 11), ("sfao", 15), ("sgd", 17)])
def test_an_interrupted_stack_goes_on_where_it_was_stacked_or_not(tmp_path, method, stops_after, goes_on):
    settings = {"momentum": 0.5}
    whole, _ = run_together(make_jobs(tmp_path / "whole", [method], **settings))
    looks = iter(range(1000))
    jobs = make_jobs(tmp_path / "cut", [method], **settings)
    with pytest.raises(Interrupted):
        run_together(jobs, stopping=lambda: next(looks) >= stops_after)
    assert all((job.folder / "checkpoint.pt").exists() for job in jobs)
    assert not any((job.folder / "record.json").exists() for job in jobs)
    resumed = compare(jobs, run=goes_on, resume=True)
    for ours, theirs in zip(resumed, whole, strict=True):
        assert read_everything(ours) == read_everything(theirs)
        assert ours.stacked == theirs.stacked, "a part of it was stacked"
        steps = [
            [line["step"] for line in read_steps(tmp_path / place / f"{method}-{ours.seed}")]
            for place in ("cut", "whole")
        ]
        assert steps[0] == steps[1]


def test_finished_runs_are_not_repeated(tmp_path):
    first, _ = run_together(make_jobs(tmp_path, seeds=2))
    again, _ = run_together(make_jobs(tmp_path, seeds=4))
    assert [record.finished for record in first] == [record.finished for record in again[:2]]
    assert [record.stacked["runs"] for record in again] == [2, 2, 2, 2]


def test_out_of_memory_halves_the_stack_and_loses_nothing(tmp_path, monkeypatch):
    alone = compare(make_jobs(tmp_path / "b", seeds=5, fraction=0.3), run=run_here)
    # Fifteen steps a task: those after the first of the second task are lost, a line of steps.jsonl among them.
    step, calls = StackedMethod.step, []

    def lack_memory(self, *batch):
        calls.append(len(self.methods))
        if len(self.methods) > 2 and len(calls) > 23:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return step(self, *batch)

    monkeypatch.setattr(StackedMethod, "step", lack_memory)
    stacked, said = run_together(make_jobs(tmp_path / "a", seeds=5, fraction=0.3))
    assert said == ["out of memory with 5 runs in a stack: going on with 2"]
    assert [read_everything(record) for record in stacked] == [read_everything(record) for record in alone]
    assert set(calls) == {5, 2, 1}
    for record in stacked:
        folders = [tmp_path / place / f"sgd-{record.seed}" for place in "ab"]
        assert [line["step"] for line in read_steps(folders[0])] == [line["step"] for line in read_steps(folders[1])]


def test_interrupted_after_it_was_halved_those_that_wait_are_saved_too(tmp_path, monkeypatch):
    whole = compare(make_jobs(tmp_path / "b", seeds=4), run=run_here)
    step, calls = StackedMethod.step, []

    def lack_memory(self, *batch):
        calls.append(len(self.methods))
        if len(self.methods) > 2 and len(calls) > 15:
            raise MemoryError
        return step(self, *batch)

    monkeypatch.setattr(StackedMethod, "step", lack_memory)
    jobs = make_jobs(tmp_path / "a", seeds=4)
    with pytest.raises(Interrupted):
        run_together(jobs, stopping=lambda: len(calls) >= 20)
    found = [load_checkpoint(job.folder).state["position"] for job in jobs]
    assert [(at["task"], at["steps"]) for at in found] == [(1, 14), (1, 14), (1, 10), (1, 10)]
    resumed, _ = run_together(jobs, resume=True)
    assert [read_everything(record) for record in resumed] == [read_everything(record) for record in whole]


def test_memory_for_not_even_one_run_fails_that_run(tmp_path, monkeypatch):
    def lack_memory(self, *batch):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(StackedMethod, "step", lack_memory)
    stacked, said = run_together(make_jobs(tmp_path, seeds=2))
    assert [record.status for record in stacked] == ["failed", "failed"]
    assert stacked[0].error == "OutOfMemoryError: CUDA out of memory"
    assert said == ["out of memory with 2 runs in a stack: going on with 1"]


def test_an_error_at_the_end_of_a_task_fails_its_run_alone(tmp_path, monkeypatch):
    end = SFAOMethod.end_task

    def fail(self, number, task, generator):
        if self.training.seed == 1 and number == 2:
            raise ValueError("no more")
        end(self, number, task, generator)

    monkeypatch.setattr(SFAOMethod, "end_task", fail)
    events = []
    records, _ = run_together(make_jobs(tmp_path, ["sfao"]), watch=lambda job, event: events.append((job, event)))
    assert [record.status for record in records] == ["done", "failed", "done"]
    assert records[1].error == "ValueError: no more"
    assert json.loads((tmp_path / "sfao-1" / "record.json").read_text())["status"] == "failed"
    assert [job.config.seed for job, event in events if isinstance(event, Failure)] == [1]
