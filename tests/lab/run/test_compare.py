import os
import signal
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path

import pytest
import yaml
from filelock import FileLock

from sfao.lab.data.errors import MissingData
from sfao.lab.run.compare import compare
from sfao.lab.run.errors import ConfigError, FolderError, Interrupted
from sfao.lab.run.jobs import Skipped, parse_seeds, plan
from sfao.lab.run.loop import Run, execute
from sfao.lab.run.progress import Update
from sfao.lab.run.record import load_record

BENCHMARK = "split-mnist-5k"


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def make_jobs(out, methods=("sgd",), seeds=(0,), **settings):
    return plan(BENCHMARK, methods, seeds, out, settings={"epochs": 1, **settings})


# -- Planning ----------------------------------------------------------------------------------------------


def test_a_plan_is_methods_times_seeds_each_in_a_folder_of_its_own():
    jobs = plan(BENCHMARK, ["sgd", "joint"], [0, 3], Path("y"), settings={"epochs": 2, "joint:lr": 0.5})
    assert [str(job.folder) for job in jobs] == ["y/sgd-0", "y/sgd-3", "y/joint-0", "y/joint-3"]
    assert [(job.config.method, job.config.seed) for job in jobs] == [
        ("sgd", 0),
        ("sgd", 3),
        ("joint", 0),
        ("joint", 3),
    ]
    assert [job.config.epochs for job in jobs] == [2, 2, 2, 2]
    assert [job.config.lr for job in jobs] == [0.01, 0.01, 0.5, 0.5]


@pytest.mark.parametrize(
    ("methods", "seeds", "settings", "message"),
    [
        (["sgdd"], [0], {}, "`methods` must be one of .*, got 'sgdd' .did you mean 'sgd'?"),
        ([], [0], {}, "`methods` must name at least one, got none"),
        (["sgd", "joint", "sgd"], [0], {}, "`methods` must name each one once, got 'sgd' twice"),
        (["sgd"], [4, 4], {}, "`seeds` must name each one once, got 4 twice"),
        (["sgd"], [], {}, "`seeds` must name at least one"),
        (["sgd", "joint"], [0], {"epoch": 1}, "sgd: unknown setting `epoch` .did you mean 'epochs'?"),
        (["sgd", "joint"], [0], {"joint:lr": -1}, "joint: `lr`: .* greater than 0, got -1"),
        (["sgd"], [0], {"joint:lr": 1}, "`joint:lr: the method` must be one of sgd, got 'joint'"),
        (["sgd", "joint"], [0], {"method": "sgd"}, "`method` must be left to the command, which says 'joint', got"),
        (["sgd"], [0], {"seed": 8}, "sgd: `seed` must be left to the command, which says 0, got 8"),
    ],
)
def test_what_is_wrong_with_a_plan_is_said_in_a_line(methods, seeds, settings, message):
    with pytest.raises(ConfigError, match=message) as error:
        plan(BENCHMARK, methods, seeds, Path("y"), settings=settings)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("text", "seeds"), [("3", [0, 1, 2]), ("3,7", [3, 7]), ("3,", [3]), (" 0, 2 ", [0, 2])])
def test_seeds_are_how_many_or_which(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "0", "00", " 0 ", ",", "-1", "two", "1,x", "1.5"])
def test_seeds_that_are_neither_are_refused(text):
    with pytest.raises(ConfigError, match="`seeds` must be how many, such as 5, or which, such as 3,7, got"):
        parse_seeds(text)


def test_a_seed_that_was_meant_as_one_is_not_taken_for_a_count():
    with pytest.raises(ConfigError, match=r"at most 1000 as a count, got 20240101; that seed alone is 20240101,$"):
        parse_seeds("20240101")
    assert parse_seeds("20240101,") == [20240101]
    assert len(parse_seeds("1000")) == 1000


# -- Refusing before anything runs ---------------------------------------------------------------------------


def check_refused(jobs, out, error, message, **how):
    before = sorted(str(path) for path in out.parent.rglob("*"))
    with pytest.raises(error, match=message):
        compare(jobs, watch=lambda job, event: pytest.fail("something ran"), **how)
    assert sorted(str(path) for path in out.parent.rglob("*")) == before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tasks": 7}, "sgd: `tasks` must divide the 10 classes"),
        ({"model.hidden": -3}, "sgd: `hidden` must be a whole number"),
        ({"device": "cudaa"}, "sgd: .*device"),
    ],
)
def test_settings_that_are_wrong_for_data_or_machine_are_found_first(out, settings, message):
    check_refused(make_jobs(out, **settings), out, ConfigError, message)


def test_missing_data_is_one_error_and_leaves_nothing(out, tmp_path):
    check_refused(
        plan("split-cifar10", ["sgd"], [0], out), out, MissingData, "sfao data get cifar10", data_root=tmp_path
    )


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("", "a file", "`out` must be a folder, got the file"),
        ("thesis.tex", "", "holds other files"),
        ("config.yaml", "", "holds a single run"),
        ("ewc-0/config.yaml", "benchmark: split-mnist", "ewc-0 is of split-mnist$"),
    ],
)
def test_a_folder_that_holds_something_else_is_refused(out, file, text, message):
    (out / file).parent.mkdir(parents=True, exist_ok=True)
    (out / file).write_text(text)
    check_refused(make_jobs(out), out, FolderError, message)


def test_a_run_with_other_settings_is_refused_though_another_is_new(out):
    (job,) = make_jobs(out, seeds=[1], epochs=3)
    job.folder.mkdir(parents=True)
    (job.folder / "config.yaml").write_text(yaml.safe_dump(job.config.model_dump()))
    check_refused(make_jobs(out, seeds=[0, 1]), out, FolderError, "`epochs` is 3 there and 1 here")


def test_an_unfinished_run_needs_resume(out):
    (job,) = make_jobs(out)
    job.folder.mkdir(parents=True)
    (job.folder / "config.yaml").write_text(yaml.safe_dump(job.config.model_dump()))
    (job.folder / "checkpoint.pt").touch()
    check_refused(make_jobs(out), out, FolderError, "holds an unfinished run; add --resume")


def test_a_record_that_cannot_be_read_is_named(out):
    (job,) = make_jobs(out)
    job.folder.mkdir(parents=True)
    (job.folder / "config.yaml").write_text(yaml.safe_dump(job.config.model_dump()))
    (job.folder / "record.json").write_text('{"half')
    check_refused(
        make_jobs(out), out, FolderError, r"sgd-0/record\.json must be the record of a run, but it is damaged: "
    )


@pytest.mark.parametrize("finished", [True, False])
def test_runs_on_other_data_are_refused_before_anything_starts(out, digits, tmp_path, finished):
    jobs = make_jobs(out, seeds=[0, 1])
    folder = jobs[1].folder
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(jobs[1].config.model_dump()))
    fewer = replace(digits, train_images=digits.train_images[::2], train_labels=digits.train_labels[::2])
    steps = iter(range(20))
    if finished:
        Run(jobs[1].config, fewer, folder).execute()
    else:
        with pytest.raises(Interrupted):
            Run(jobs[1].config, fewer, folder).execute(stopping=lambda: next(steps, None) is None)
    message = "sgd-1 holds one on 2000 training and 1000 test images of mnist-5k, here are 4000 and 1000"
    check_refused(jobs, out, FolderError, message, resume=True)


def test_two_comparisons_cannot_share_a_folder_at_a_time(out):
    out.mkdir()
    with FileLock(out / ".lock"), pytest.raises(FolderError, match="another process is comparing in"):
        compare(make_jobs(out))


def test_a_run_that_another_process_is_doing_is_found_first(out):
    jobs = make_jobs(out, seeds=[0, 1])
    jobs[1].folder.mkdir(parents=True)
    with FileLock(jobs[1].folder / ".lock"):
        check_refused(jobs, out, FolderError, "another process is running in .*sgd-1")


def test_what_a_killed_process_had_just_begun_is_no_obstacle(out):
    (job,) = make_jobs(out, tasks=7)
    job.folder.mkdir(parents=True)
    (job.folder / ".config.yaml.123.part").touch()
    check_refused([job], out, ConfigError, "`tasks`")  # the folder is fine, the next check is reached


# -- Running -------------------------------------------------------------------------------------------------


def test_finished_runs_are_skipped_also_diverged_ones(out):
    first = make_jobs(out, methods=["sgd", "joint"], **{"joint:lr": 1e30})
    done, diverged = compare(first, workers=1)
    assert (done.status, diverged.status) == ("done", "diverged")
    heard = []
    again = compare(
        make_jobs(out, methods=["sgd", "joint"], **{"joint:lr": 1e30}), watch=lambda job, event: heard.append(event)
    )
    assert again == [done, diverged]
    assert heard == [Skipped(done), Skipped(diverged)]


def test_a_killed_run_leaves_a_failed_record_with_its_data_and_goes_on_from_its_checkpoint(out, tmp_path):
    jobs = make_jobs(out, epochs=8)

    def kill(job, event):
        if isinstance(event, Update) and event.task >= 1:  # there is a checkpoint after every task
            (worker,) = active_children()
            os.kill(worker.pid, signal.SIGKILL)

    (failed,) = compare(jobs, watch=kill)
    assert load_record(jobs[0].folder) == failed
    assert (failed.status, failed.metrics, failed.data["embedded"]) == ("failed", {}, True)
    assert "SIGKILL" in failed.error
    steps = []
    (record,) = compare(jobs, watch=lambda job, event: steps.append(getattr(event, "step", None)))
    alone = execute(jobs[0].config, tmp_path / "alone")
    assert record.weights_sha256 == alone.weights_sha256
    assert record.metrics == alone.metrics
    assert min(step for step in steps if step) > 400  # of 2000: the first task was not learnt again


# -- Several comparisons in one pool ---------------------------------------------------------------------------


def two_places(tmp_path, **settings):
    benchmarks = ("split-mnist-5k", "permuted-mnist-5k")
    return [plan(name, ["sgd"], [0], tmp_path / name, settings=settings)[0] for name in benchmarks]


def test_runs_of_two_places_are_under_way_at_the_same_time(tmp_path):
    under_way, both = set(), []

    def watch(job, event):
        (under_way.add if isinstance(event, Update) else under_way.discard)(job.folder.parent.name)
        both.append(len(under_way) == 2)

    with pytest.raises(Interrupted):  # one after the other they would all end, and none be interrupted
        compare(two_places(tmp_path, epochs=60), workers=2, watch=watch, stopping=lambda: any(both))
    saved = sorted(path.parent.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("checkpoint.pt"))
    assert saved == ["permuted-mnist-5k/sgd-0", "split-mnist-5k/sgd-0"]


def test_runs_of_two_places_end_in_their_folders_as_they_would_alone(tmp_path):
    jobs = two_places(tmp_path / "together", epochs=1)
    records = compare(jobs, workers=1)
    assert [load_record(job.folder) for job in jobs] == records
    for job, record in zip(jobs, records, strict=True):
        alone = execute(job.config, tmp_path / "alone" / job.config.benchmark)
        assert (record.benchmark, record.weights_sha256) == (job.config.benchmark, alone.weights_sha256)


def test_one_place_that_is_taken_or_wrong_stops_both_before_anything_runs(tmp_path):
    jobs = two_places(tmp_path, epochs=1)
    taken = jobs[1].folder.parent
    taken.mkdir()
    with FileLock(taken / ".lock"):
        check_refused(jobs, tmp_path / "out", FolderError, "another process is comparing in .*permuted-mnist-5k")
    (taken / "thesis.tex").touch()
    check_refused(jobs, tmp_path / "out", FolderError, "permuted-mnist-5k holds other files")
