import json
import shutil
from hashlib import sha256

import pytest

from sfao.lab.metrics import summary
from sfao.lab.report.runs import find_unfinished_runs, group_runs, load_runs, write_notices
from sfao.lab.run.errors import ReportError
from sfao.lab.run.record import RECORD
from tests.lab.report.real_runs import edited
from tests.records import read_values

NAMES = ["sgd-0", "sgd-1", "ewc-0", "ewc-1", "si-0", "si-1", "sfao-0", "sfao-1", "permuted-0"]


def test_a_loaded_run_is_what_its_folder_holds(compared, runs):
    assert [run.name for run in runs] == NAMES
    for run in runs:
        folder = compared / run.name
        assert run.folder == folder.resolve()
        assert vars(run.record) == read_values(folder)
        assert run.steps == [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
        assert run.notice == ""


def test_runs_are_found_at_any_depth_in_natural_order_and_once(compared, tmp_path):
    for name in ("a/b/sgd-10", "a/sgd-2", "a/.hidden/sgd-3"):
        shutil.copytree(compared / "sgd-0", tmp_path / name)
    found = load_runs([tmp_path / "a", tmp_path / "a" / "sgd-2", tmp_path / "a" / "b" / ".."])
    assert [run.name for run in found] == ["b/sgd-10", "sgd-2"]
    shutil.move(tmp_path / "a" / "b" / "sgd-10", tmp_path / "a" / "sgd-10")
    assert [run.name for run in load_runs([tmp_path / "a"])] == ["sgd-2", "sgd-10"]


def test_methods_come_in_their_order_with_the_bound_last(compared, tmp_path):
    for number, method in enumerate(("unheard", "joint", "gpm", "sfao", "ewc", "sgd")):
        edited(compared / "sgd-0", tmp_path / f"{number}", method=method)
    runs = load_runs([tmp_path])
    order = ["sgd", "ewc", "gpm", "sfao", "unheard", "joint"]
    assert [run.record.method for run in runs] == order
    (group,) = group_runs(runs)
    assert [row.method for row in group.group.rows] == order


def test_no_runs_are_an_error_that_names_the_folder(compared, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    for name, rule in (
        ("none", "must be a folder of runs, none there"),
        ("file", "must be a folder of runs, it is a file"),
        ("empty", "must be or hold finished runs (folders with record.json), found none"),
    ):
        with pytest.raises(ReportError) as caught:
            load_runs([compared, tmp_path / name])
        assert str(caught.value) == f"`{tmp_path / name}` {rule}"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"accuracy_matrix": 5}, "`accuracy_matrix`"),
        ({"accuracy_matrix": [[0.5]]}, "`initial` must hold one"),
        ({"accuracy_matrix": [[0.5, 2.0], [0.5, 0.5]]}, "accuracies in [0, 1], got 2.0"),
        ({"metrics": {}}, "`metrics.average_accuracy` must be that of the accuracy matrix, 0."),
        ({"metrics": {"average_accuracy": float("nan")}}, ", got nan"),
        ({"metrics": {"average_accuracy": 0.999}}, "must be that of the accuracy matrix, 0."),
        ({"decisions": {"layer": 3}}, "`decisions.layer`"),
        ({"seed": "many"}, "`seed`"),
        ({"data": {"name": "mnist"}}, "`data.train`: Field required"),
        ({"unheard": 1}, "unheard"),
    ],
)
def test_a_damaged_record_is_named_with_what_is_wrong(compared, tmp_path, changes, said):
    folder = edited(compared / "sgd-0", tmp_path / "run", **changes)
    with pytest.raises(ReportError) as caught:
        load_runs([tmp_path])
    assert str(folder / RECORD) in str(caught.value)
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 2


@pytest.mark.parametrize("text", ["", "[]", "{", '{"benchmark": "x"}', "\x00"])
def test_a_record_that_is_none_is_named(compared, tmp_path, text):
    folder = edited(compared / "sgd-0", tmp_path / "run")
    (folder / RECORD).write_text(text)
    with pytest.raises(ReportError, match=r"record\.json must be the record of a run, but it is damaged"):
        load_runs([folder])


DAMAGES = [
    b'{"step": 40, "ta',
    b"5",
    b'{"step": 40}',
    b'{"step": 40, "task": 1, "decisions": {}, "gate": {"a": {"cosine": NaN, "kept": 1.0}}}',
    b'{"step": 40, "task": 1, "decisions": {"a": {"accept": 1, "project": 2}}, "gate": {}}',
]


@pytest.mark.parametrize("has_digest", [False, True])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_steps_are_left_out(compared, tmp_path, damage, has_digest):
    steps = (compared / "sfao-0" / "steps.jsonl").read_bytes() + damage + b"\n"
    digest = {"steps_sha256": sha256(steps).hexdigest()} if has_digest else {}
    folder = edited(compared / "sfao-0", tmp_path / "sfao-0", **digest)
    (folder / "steps.jsonl").write_bytes(steps)
    (run,) = load_runs([folder])
    assert (run.steps, run.notice) == ([], "steps.jsonl is damaged; figures leave it out")


def test_notices_name_missing_repeated_and_unfinished_runs(compared, tmp_path):
    for number in range(6):
        edited(compared / "sgd-0", tmp_path / f"sgd-{number}", seed=min(number, 4))
        (tmp_path / f"sgd-{number}" / "steps.jsonl").unlink()
    assert find_unfinished_runs([tmp_path]) == []
    (tmp_path / "sgd-1" / RECORD).unlink()
    runs = load_runs([tmp_path])
    assert write_notices(runs, group_runs(runs), find_unfinished_runs([tmp_path, tmp_path])) == [
        "sgd-0, sgd-2, sgd-3 and 2 more: it has no steps.jsonl.",
        "sgd-5: left out, another run has the same settings and seed.",
        "sgd-1: not finished and left out.",
    ]


def test_what_must_not_be_compared_is_in_groups_of_its_own(runs):
    groups = group_runs(runs)
    own = [[run for runs in group.runs.values() for run in runs] for group in groups]
    assert [{run.record.benchmark for run in one} for one in own] == [{"split-mnist-5k"}, {"permuted-mnist-5k"}]
    assert [group.slug for group in groups] == ["split-mnist-5k-domain", "permuted-mnist-5k-domain"]
    assert sum(map(len, own)) == len(runs)


def test_a_row_has_the_runs_that_its_numbers_are_of(split):
    for row in split.group.rows:
        own = split.done.get(row.method, [])
        assert len(own) == row.done
        assert all(run.record.status == "done" for run in own)
    diverged = [run.name for own in split.runs.values() for run in own if run.record.status == "diverged"]
    assert diverged == ["si-1"]


def test_records_that_cannot_belong_together_are_told(compared, tmp_path):
    three, initial = [[0.5] * 3] * 3, [0.5] * 3
    edited(compared / "sgd-0", tmp_path / "a")
    numbers = {"accuracy_matrix": three, "initial_accuracy": initial, "metrics": summary(three, initial)}
    edited(compared / "sgd-1", tmp_path / "b", **numbers)
    with pytest.raises(ReportError, match="must have as many tasks, but a has 2 and b has 3"):
        group_runs(load_runs([tmp_path]))
