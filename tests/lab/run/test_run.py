"""One run: what it leaves, and which folders it refuses."""

import json
from dataclasses import replace

import pytest

from sfao.lab.run.config import configure
from sfao.lab.run.errors import FolderError, Interrupted
from sfao.lab.run.loop import Run, execute
from sfao.lab.run.record import load_record
from tests.lab.methods.scenarios import set_scenario
from tests.records import change_record

DIGITS = {"name": "mnist-5k", "test": 1000, "embedded": True, "digest": "a6bbd5113f469d9a", "published": True}
FAST = {"epochs": 1, "model.hidden": 16, "tasks": 2, "batch_size": 40, "lr": 0.05}


def config(method="sgd", **settings):
    return configure("split-mnist-5k", method, settings={**FAST, **set_scenario(method), **settings})


def test_what_a_run_leaves(tmp_path, digits):
    record = execute(config(epochs=3), tmp_path / "run")
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        ".lock",
        "config.yaml",
        "record.json",
        "steps.jsonl",
    ]
    assert record == load_record(tmp_path / "run")
    assert record.status == "done"
    assert len(record.accuracy_matrix) == len(record.accuracy_matrix[0]) == 2
    assert record.accuracy_matrix[0][0] > 0.8
    assert record.metrics["average_accuracy"] == pytest.approx(sum(record.accuracy_matrix[1]) / 2)
    assert record.steps == 2 * 3 * 50  # two tasks of five classes, 400 images each
    assert record.data == {**DIGITS, "train": 4000, "complete": True}
    assert (record.trained_on, record.stores_data) == (4000, False)
    lines = [json.loads(line) for line in (tmp_path / "run" / "steps.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(20, 301, 20))


@pytest.mark.parametrize(
    ("benchmark", "settings", "learnt", "stored"),
    [
        ("split-mnist-5k", {"tasks": 2, "fraction": 0.1}, 400, 400),
        ("split-mnist-5k", {"tasks": 2, "fraction": 0.1, "validation": 0.25}, 300, 300),
        ("permuted-mnist-5k", {"tasks": 3, "fraction": 0.1}, 400, 1200),  # the same images, permuted anew
    ],
)
def test_the_images_that_were_learnt_from_are_counted_and_those_of_joint_are_held(
    tmp_path, digits, benchmark, settings, learnt, stored
):
    record = Run(configure(benchmark, "joint", settings={**FAST, **settings}), digits, tmp_path).execute()
    assert (record.trained_on, record.stores_data) == (learnt, True)
    assert record.memory_bytes == stored * (28 * 28 + 8)  # a label is a whole number of eight bytes


def test_the_seed_decides_everything(tmp_path):
    one, same, other = (
        execute(configure("split-mnist-5k", "sgd", seed=seed, settings=FAST), tmp_path / name)
        for seed, name in ((1, "a"), (1, "b"), (2, "c"))
    )
    assert one.weights_sha256 == same.weights_sha256 != other.weights_sha256
    assert one.accuracy_matrix == same.accuracy_matrix


class StopAt:
    """Says stop after so many steps of the whole run, counting those before it was resumed."""

    def __init__(self, folder, step):
        from sfao.lab.run.checkpoint import load_checkpoint

        loaded = load_checkpoint(folder) if folder.exists() else None
        self.left = step - (loaded.state["position"]["steps"] if loaded else 0)

    def __call__(self):
        self.left -= 1
        return self.left <= 0


@pytest.mark.parametrize("method", ["sgd", "sfao"])
@pytest.mark.parametrize("batch_size", [40, 150])  # with the larger one, a task is over before a line of telemetry
def test_a_diverged_run_says_so_and_leaves_a_record(tmp_path, method, batch_size):
    record = execute(config(method, lr=1e30, batch_size=batch_size), tmp_path / "run")
    assert record.status == "diverged"
    assert "the loss was" in record.error or "must be finite" in record.error
    assert record.metrics == {}
    assert load_record(tmp_path / "run").status == "diverged"


def test_a_last_step_that_breaks_the_model_is_a_divergence(tmp_path):
    record = execute(config(lr=1e38, batch_size=4000, tasks=1), tmp_path / "run")
    assert record.status == "diverged"
    assert record.error.startswith("the model gives outputs that are no numbers on task")


@pytest.mark.parametrize("stop_at", [60, None])
def test_neither_checkpoint_nor_record_of_other_data_is_taken_for_this_run(tmp_path, digits, stop_at):
    folder = tmp_path / "run"
    folder.mkdir()
    fewer = replace(digits, train_images=digits.train_images[::2], train_labels=digits.train_labels[::2])
    if stop_at is None:
        execute(config(), folder)
        change_record(folder, data={**load_record(folder).data, "train": 9})
    else:
        with pytest.raises(Interrupted):
            execute(config(), folder, stopping=StopAt(folder, stop_at))
    with pytest.raises(FolderError, match="must be new or hold a run on the same data"):
        Run(config(), fewer, folder).execute() if stop_at else execute(config(), folder)


def test_a_resumed_run_never_pads_telemetry_that_was_lost(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        execute(config(), folder, stopping=StopAt(folder, 60))
    (folder / "steps.jsonl").write_text((folder / "steps.jsonl").read_text()[:-30])
    execute(config(), folder, resume=True)
    lines = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [80, 100]
    assert "steps.jsonl was damaged; its lines up to step 60 are lost" in load_record(folder).warnings


def test_what_a_killed_process_had_begun_to_write_goes(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".checkpoint.pt.123.part").write_bytes(b"half")
    execute(config(), tmp_path / "run")
    assert not list((tmp_path / "run").glob(".*.part"))


def test_a_finished_run_is_not_run_again(tmp_path):
    first = execute(config(), tmp_path / "run")
    changed = (tmp_path / "run" / "record.json").stat().st_mtime_ns
    assert execute(config(), tmp_path / "run") == first
    assert (tmp_path / "run" / "record.json").stat().st_mtime_ns == changed


def test_folders_that_are_refused(tmp_path):
    execute(config(), tmp_path / "run")
    before = {p: p.read_bytes() for p in (tmp_path / "run").iterdir()}
    with pytest.raises(FolderError, match=r"`lr` is 0\.05 there and 0\.1 here"):
        execute(config(lr=0.1), tmp_path / "run")
    assert {p: p.read_bytes() for p in (tmp_path / "run").iterdir()} == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    with pytest.raises(FolderError, match="holds other files"):
        execute(config(), tmp_path / "mine")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
    with pytest.raises(FolderError, match="must be a folder"):
        execute(config(), tmp_path / "mine" / "thesis.tex")
    with pytest.raises(Interrupted):
        execute(config(), tmp_path / "half", stopping=lambda: True)
    with pytest.raises(FolderError, match="add --resume"):
        execute(config(), tmp_path / "half")


def test_a_folder_in_use_is_refused_as_such_even_with_a_checkpoint(tmp_path):
    refusals = []

    def once_saved() -> bool:
        if not refusals and (tmp_path / "run" / "checkpoint.pt").exists():
            with pytest.raises(FolderError, match="another process is running") as caught:
                execute(config(), tmp_path / "run")
            refusals.append(caught)
        return False

    execute(config(), tmp_path / "run", checkpoint_seconds=0, stopping=once_saved)
    assert refusals


@pytest.mark.parametrize(("asked", "cost", "saved"), [(20.0, 0.0, 2), (1e6, 0.0, 0), (20.0, 3.0, 1)])
def test_the_end_of_a_task_is_saved_unless_that_takes_long_or_is_not_wanted(
    tmp_path, monkeypatch, digits, asked, cost, saved
):
    """A state that takes three seconds to save may be saved every thirty; both tasks are learnt in less."""
    seconds, saves = [0.0], []

    def tell_time() -> float:
        seconds[0] += 1e-3
        return seconds[0]

    monkeypatch.setattr("sfao.lab.run.loop.time.monotonic", tell_time)

    def save(*state):
        saves.append(state)
        seconds[0] += cost

    monkeypatch.setattr("sfao.lab.run.loop.save_checkpoint", save)
    Run(config(), digits, tmp_path, checkpoint_seconds=asked).execute()
    assert len(saves) == saved


def test_validation_is_evaluated_when_asked(tmp_path):
    held = config(validation=0.25, evaluate="validation")
    tested = config(validation=0.25)
    one, other = execute(held, tmp_path / "a"), execute(tested, tmp_path / "b")
    assert one.weights_sha256 == other.weights_sha256
    assert one.accuracy_matrix != other.accuracy_matrix


def test_tasks_in_another_order_are_told_by_number_and_name(tmp_path):
    plain = execute(config(tasks=5), tmp_path / "plain")
    moved = execute(config(tasks=5, order=[4, 2, 0, 1, 3]), tmp_path / "moved")
    assert (plain.order, plain.task_names) == ([0, 1, 2, 3, 4], ["0/1", "2/3", "4/5", "6/7", "8/9"])
    assert (moved.order, moved.task_names) == ([4, 2, 0, 1, 3], ["8/9", "4/5", "0/1", "2/3", "6/7"])
    assert [plain.initial_accuracy[place] for place in moved.order] == moved.initial_accuracy
    best = [max(range(5), key=row.__getitem__) for row in moved.accuracy_matrix]
    assert best[0] == 0  # the first row is after the first task learnt, which is the first column


def test_a_slice_is_learnt_from_and_recorded(tmp_path):
    record = execute(config(fraction=0.1), tmp_path / "run")
    assert record.steps == 2 * 5  # two tasks of five classes, 40 images each
    assert record.data == {**DIGITS, "train": 400, "complete": False}
    assert record.config["fraction"] == 0.1


def test_what_a_run_held_is_recorded(tmp_path):
    options = {"options.target": "loss", "options.directions": None, "options.storage": "dense"}
    record = execute(config("ogd", **options), tmp_path / "run")
    assert record.parameters == 784 * 16 + 16 + 16 * 5 + 5
    assert record.directions == 100  # fifty batches of each of the two tasks
    assert record.memory_bytes == 100 * record.parameters * 4


def test_a_setting_that_came_later_does_not_keep_an_older_run_from_being_known(tmp_path):
    first = execute(config(), tmp_path / "run")
    file = tmp_path / "run" / "config.yaml"
    file.write_text("".join(line for line in file.read_text().splitlines(True) if "fraction" not in line))
    assert execute(config(), tmp_path / "run") == first
    with pytest.raises(FolderError, match=r"`fraction` is 1\.0 there and 0\.5 here"):
        execute(config(fraction=0.5), tmp_path / "run")
