"""Runs that are done, runs left to do, and runs without data."""

import pytest
import yaml

from sfao.lab.paper.plan import plan_runs
from sfao.lab.paper.series import Scale, table_series
from sfao.lab.run.errors import FolderError
from tests.lab.data.publishers import digits, write_mnist
from tests.lab.paper.made_records import record

TABLE1 = table_series(1, "released")
SGD, EWC = TABLE1["SGD", ""], TABLE1["EWC", ""]
FEW = {"train": 40, "test": 20, "complete": False}


@pytest.fixture
def root(tmp_path):
    """A data root with a little MNIST in it, in the publisher's layout."""
    write_mnist(tmp_path / "data" / "MNIST" / "raw", digits(train=40, test=20))
    return tmp_path / "data"


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def leave(out, series, seed=0, *, data=FEW, **changes):
    made = record(series, seed, data=data, **changes)
    folder = series.folder(out, seed, Scale(made.config["fraction"]))
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(made.config))
    made.save(folder)
    return folder


def test_runs_that_several_tables_need_are_planned_once(out, root):
    tables = [*table_series(1, "released").values(), *table_series(8, "released").values()]
    plan = plan_runs(tables, [0, 1], out, data_root=root)
    folders = [job.folder for job in plan.left]
    assert len(folders) == len(set(folders)) == 2 * (5 + 2 + 2)  # OGD and SFAO on two permuted streams more
    assert {folder.parent.name for folder in folders} == {"split-mnist", "permuted-mnist", "permuted-mnist-tasks5"}
    assert set(plan.states.values()) == {"to do"}
    assert not out.exists()


def test_finished_runs_are_taken_and_unfinished_ones_gone_on_with(out, root):
    leave(out, SGD)
    half = leave(out, EWC)
    (half / "record.json").unlink()
    (half / "checkpoint.pt").touch()
    plan = plan_runs([SGD, EWC], [0, 1], out, data_root=root)
    assert [record.method for record in plan.done.values()] == ["sgd"]
    assert {folder.name: state for folder, state in plan.states.items()} == {
        "sgd-0": "done", "sgd-1": "to do", "ewc-0": "unfinished", "ewc-1": "to do",
    }  # fmt: skip


def test_what_failed_is_done_again_and_what_diverged_is_not(out, root):
    leave(out, SGD, 0, status="failed")
    leave(out, SGD, 1, status="diverged")
    plan = plan_runs([SGD], [0, 1], out, data_root=root)
    assert [record.status for record in plan.done.values()] == ["diverged"]
    assert [job.config.seed for job in plan.left] == [0]


def test_the_same_run_under_another_preset_is_not_done_again(out, root):
    leave(out, SGD)
    leave(out, TABLE1["SFAO", ""])
    same, other = (table_series(1, "recommended")[row, ""] for row in ("SGD", "SFAO"))
    plan = plan_runs([same, other], [0, 1], out, data_root=root)
    assert [record.method for record in plan.done.values()] == ["sgd"]
    assert [job.folder.name for job in plan.left] == ["sgd-1", "sfao-0", "sfao-1"]
    assert plan.states[same.folder(out, 0)] == "done"
    assert list(plan.done) == [SGD.folder(out, 0)]


def test_runs_take_as_long_as_finished_ones_that_differ_in_the_seed(out, root):
    leave(out, SGD, 0, seconds=2.0)
    leave(out, SGD, 1, seconds=4.0)
    plan = plan_runs([SGD, EWC], [0, 1, 2], out, data_root=root)
    assert plan.expected_seconds() == {SGD.folder(out, 2): 3.0}


def test_a_folder_with_another_run_is_refused(out, root):
    folder = leave(out, SGD)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    (folder / "config.yaml").write_text(yaml.safe_dump({**config, "epochs": 7}))
    with pytest.raises(FolderError, match="`epochs` is 7 there and 2 here"):
        plan_runs([SGD], [0], out, data_root=root)


def test_runs_on_other_data_are_not_added_to(out, root):
    leave(out, SGD, data={})
    with pytest.raises(FolderError, match="holds one on 60000 training and 10000 test images of mnist, here are 40"):
        plan_runs([SGD], [0, 1], out, data_root=root)
    assert len(plan_runs([SGD], [0], out, data_root=root).done) == 1  # nothing is left to do on data of either kind


def test_without_data_what_is_done_still_counts(out, root, tmp_path):
    leave(out, SGD)
    nothing = tmp_path / "nothing"
    plan = plan_runs([SGD, EWC], [0], out, data_root=nothing)
    assert len(plan.done) == 1
    assert plan.left == []
    assert f"Get it with: sfao data get mnist --data-root {nothing}" in plan.absent["mnist"]
    assert {folder.name: state for folder, state in plan.states.items()} == {"sgd-0": "done", "ewc-0": "no data"}
