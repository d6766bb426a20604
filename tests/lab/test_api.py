"""The laboratory from Python: the same runs as by name, and errors before anything is run."""

import json
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from sfao import lab
from sfao.lab.methods import METHODS, Method, Training
from sfao.lab.models import MODELS
from sfao.lab.run.config import configure
from sfao.lab.run.errors import FolderError, Interrupted
from sfao.lab.run.loop import execute
from sfao.lab.streams.suite import BENCHMARKS

ROOT = Path(__file__).parents[2]
QUICK = {"epochs": 1, "lr": 0.05}


def points(task, count, seed):
    generator = torch.Generator().manual_seed(100 * task + seed)
    labels = torch.randint(2, (count,), generator=generator)
    inputs = torch.randn(count, 6, generator=generator)
    inputs[:, task] += 4.0 * labels - 2
    return TensorDataset(inputs, labels)


def tasks():
    return [(points(task, 96, 0), points(task, 50, 1)) for task in range(2)]


def network(input_shape, outputs, width=8):
    return nn.Sequential(nn.Linear(input_shape[0], width), nn.ReLU(), nn.Linear(width, outputs))


class Plain(Method):
    """Nothing but what `Method` has."""


class Counting(Method):
    """Notes what the loop calls."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.calls: list[str] = []

    def begin_task(self, number, task):
        self.calls.append(f"begin {number} {task.name}")

    def end_task(self, number, task, generator):
        super().end_task(number, task, generator)
        self.calls.append(f"end {number} {task.name}")

    def concerns(self):
        return self.calls


def test_every_method_of_ours_runs_on_data_of_ones_own():
    settings = {**QUICK, "scenario": "task"}  # in which every method can run
    result = lab.compare(tasks, methods=list(METHODS), model=network, seeds=1, settings=settings)
    assert [record.method for record in result.records] == list(METHODS)
    assert {record.status for record in result.records} == {"done"}
    assert result.means().keys() == METHODS.keys()
    assert all(method in str(result) for method in METHODS)
    assert repr(result) == str(result)
    assert result._repr_markdown_().startswith("## own")
    assert result.folder is None


def test_a_method_that_changes_nothing_is_sgd_to_the_bit():
    result = lab.compare(tasks(), methods=["sgd", Plain], model=network, seeds=[3], settings=QUICK)
    assert result.records[0].weights_sha256 == result.records[1].weights_sha256
    assert result.records[1].method == f"{__name__}:Plain"


def test_the_hooks_are_called_in_order():
    named = dict(zip(("first", "second"), tasks(), strict=True))
    (record,) = lab.compare(named, methods=[Counting], seeds=1, settings=QUICK).records
    assert record.warnings == ["begin 0 first", "end 0 first", "begin 1 second", "end 1 second"]
    assert record.task_names == ["first", "second"]


def test_by_name_and_in_a_process_of_its_own_a_run_is_the_same(tmp_path):
    how = {"seeds": 2, "settings": {**QUICK, "model.width": 5}}
    here = lab.compare(tasks, methods=["sgd", Plain], model=network, **how)
    named = lab.compare(
        f"{__name__}:tasks",
        methods=["sgd", f"{__name__}:Plain"],
        model=f"{__name__}:network",
        workers=2,
        out=tmp_path / "out",
        **how,
    )
    digests = [[record.weights_sha256 for record in result.records] for result in (here, named)]
    assert digests[0] == digests[1]
    kept = json.loads((tmp_path / "out" / f"{__name__}.Plain-1" / "record.json").read_text())
    assert (kept["benchmark"], kept["method"]) == (f"{__name__}:tasks", f"{__name__}:Plain")
    assert kept["config"]["model"] == {"name": f"{__name__}:network", "width": 5}


def test_what_is_finished_is_not_repeated_and_other_data_are_refused(tmp_path):
    how = {"methods": ["sgd"], "model": network, "seeds": 1, "settings": QUICK, "out": tmp_path / "out"}
    (first,) = lab.compare(tasks, **how).records
    (again,) = lab.compare(tasks, **how).records
    assert (again.finished, again.seconds) == (first.finished, first.seconds)
    with pytest.raises(FolderError, match=r"on the same data.* with other values"):
        lab.compare(list(reversed(tasks())), **how)


def test_a_run_of_ones_own_resumes_to_the_bit(tmp_path):
    name = f"{__name__}:tasks"
    config = configure(name, f"{__name__}:Plain", settings={**QUICK, "model.name": f"{__name__}:network"})
    whole = execute(config, tmp_path / "whole")
    steps = iter(range(100))
    with pytest.raises(Interrupted):
        execute(config, tmp_path / "parts", stopping=lambda: next(steps) == 4)
    rest = execute(config, tmp_path / "parts", resume=True)
    assert rest.weights_sha256 == whole.weights_sha256
    assert rest.accuracy_matrix == whole.accuracy_matrix


@pytest.mark.parametrize("scenario", ["domain", "task", "class"])
def test_every_scenario(scenario):
    digits = [(TensorDataset(one.tensors[0], one.tensors[1] + 2 * n) for one in pair) for n, pair in enumerate(tasks())]
    (record,) = lab.compare(
        [tuple(pair) for pair in digits], methods=["agem"], seeds=1, scenario=scenario, settings=QUICK
    ).records
    assert (record.status, record.scenario) == ("done", scenario)


def test_a_pretrained_module_begins_as_it_is():
    module = network((6,), 2)
    settings = {**QUICK, "lr": 1e-12}
    result = lab.compare(tasks, methods=["sgd"], model=module, seeds=2, settings=settings)
    assert len({record.accuracy_matrix[-1][0] for record in result.records}) == 1


class Wrong:
    def step(self):
        pass


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 2)

    def forward(self, inputs):
        return self.layer(inputs), None


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"methods": ["sgdd"]}, "`methods` must be one of .* .did you mean 'sgd'.*; your own is module:attribute"),
        ({"methods": ["nowhere:Method"]}, "`methods` 'nowhere:Method' cannot be imported: ModuleNotFoundError"),
        (
            {"methods": [Wrong]},
            "must be a class derived from sfao.lab.methods.Method, got <class",
        ),
        (
            {"methods": [Method(nn.Linear(1, 1), Training(1, 0, "ema", 0, 1, 0), Method.Options())]},
            "must be a class",
        ),
        ({"methods": []}, "`methods` must name at least one, got none"),
        ({"model": "nowhere:net"}, "`model.name` 'nowhere:net' cannot be imported"),
        ({"model": 3}, "`model` '.*' must be a module, or a function or class"),
        ({"model": nn.Linear(6, 1)}, "must have 2 outputs for the labels, got 1"),
        ({"model": nn.Linear(5, 2)}, r"must take inputs of shape \(1, 6\), got RuntimeError"),
        ({"model": Pair}, "must return one row of outputs for each example, got tuple"),
        ({"model": nn.Flatten()}, "must have parameters to train, got none"),
        ({"model": network, "settings": {"model.widht": 3}}, "unknown option `widht` .did you mean 'width'"),
        ({"seeds": 0}, "`seeds` must be a whole number of at least 1, got 0"),
        ({"workers": 0}, "`workers` must be a whole number of at least 1, got 0"),
        ({"workers": 2}, "`workers` above 1 needs names .*, got function as `stream`"),
        ({"stream": [(3, 4)]}, "the training set of task 1 must be a torch data set with a length, got int"),
        ({"stream": 3}, "`benchmark` 'own' must be a list or dict of .train, test. pairs"),
        ({"stream": "nowhere:tasks"}, "`benchmark` 'nowhere:tasks' cannot be imported"),
    ],
)
def test_errors_are_one_line_and_nothing_is_written(how, said, tmp_path):
    given = {"stream": tasks, "methods": ["sgd"], "seeds": 1, "out": tmp_path / "out", **how}
    known = [dict(names) for names in (METHODS, MODELS, BENCHMARKS)]
    with pytest.raises(ValueError, match=said) as caught:
        lab.compare(given.pop("stream"), **given)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    assert [dict(names) for names in (METHODS, MODELS, BENCHMARKS)] == known


def test_an_error_of_a_method_of_ones_own_arrives_as_it_is():
    class Failing(Method):
        def step(self, inputs, targets, outputs):
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        lab.compare(tasks, methods=[Failing], seeds=1)


def test_means_of_a_metric_that_is_none():
    result = lab.compare(tasks, methods=["sgd"], seeds=1, settings=QUICK)
    with pytest.raises(ValueError, match=r"`metric` must be one of average_accuracy, .*, got 'accuracy'"):
        result.means("accuracy")


@pytest.mark.parametrize("name", [name for name in METHODS if name != "joint"])
def test_every_method_in_ones_own_loop(name):
    stream = lab.make_stream(tasks())
    model = network(stream.input_shape, stream.outputs)
    before = [parameter.clone() for parameter in model.parameters()]
    method = lab.make_method(name, model, lr=0.05)
    generator = torch.Generator().manual_seed(0)
    for number, task in enumerate(stream):
        method.begin_task(number, task)
        for inputs, labels in task.train.batches(32, generator):
            loss = method.step(inputs, labels, task.outputs)
            assert loss.isfinite()
        method.end_task(number, task, generator)
    assert not any(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"method": "ewcc"}, "`method` must be one of"),
        ({"method": "ewc", "strenght": 3}, "unknown setting `strenght` .did you mean 'strength'"),
        ({"method": "ewc", "strength": -1}, "`strength`: .*greater than or equal to 0, got -1"),
        ({"method": "sgd", "lr": -1}, "lr.* must be .*got -1"),
        ({"method": Wrong}, "must be a class derived from sfao.lab.methods.Method"),
    ],
)
def test_errors_of_make_method(how, said):
    with pytest.raises(ValueError, match=said):
        lab.make_method(how.pop("method"), nn.Linear(3, 2), **{"lr": 0.1, **how})


def test_the_example(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import own_stream

    monkeypatch.setattr(own_stream, "SEEDS", 1)
    own_stream.main()
    printed = capsys.readouterr().out
    assert "own_stream:Slower" in printed
    assert printed.count(" forgets ") == 6
    del sys.modules["own_stream"]
