"""Schedules, early stopping and augmentation: what they do, that they resume bit for bit, and what they refuse."""

from math import cos, pi

import pytest
import torch
from torch import nn

from sfao.lab import make_method
from sfao.lab.methods import METHODS
from sfao.lab.run.config import configure
from sfao.lab.run.epoch_batches import augment_images
from sfao.lab.run.errors import ConfigError, Interrupted
from sfao.lab.run.loop import Run, execute, set_up
from sfao.lab.run.schedule import make_schedule
from tests.lab.run.test_run import StopAt

#: Two tasks of five epochs of ten steps.
FAST = {"epochs": 5, "model.hidden": 16, "tasks": 2, "batch_size": 32, "fraction": 0.2, "validation": 0.2, "lr": 0.1}
PLATEAU = {"schedule": "plateau", "lr_patience": 1, "lr_factor": 10, "lr_min": 0.005}
AUGMENTED = {"augment": ["flip", "crop"]}


def config(method="sgd", **settings):
    return configure("split-mnist-5k", method, settings={**FAST, **settings})


def follow(settings, losses):
    """Return the learning rate after each validation loss, and the schedule and its model after them."""
    model = nn.Linear(1, 1)
    method = make_method("sgd", model, lr=0.1)
    schedule = make_schedule(config(**settings), method)
    rates = []
    for number, loss in enumerate(losses):
        nn.init.constant_(model.weight, number)
        schedule.end_epoch(loss)
        rates.append(method.optimizer.param_groups[0]["lr"])
    return rates, schedule, model


def test_plateau_follows_the_code_of_the_gpm_authors():
    """Patience 2: two losses without improvement divide the rate by 10; below lr_min the task is over."""
    settings = {**PLATEAU, "lr_patience": 2}
    rates, schedule, model = follow(settings, [1.0, 0.5, 0.6, 0.5, 0.7, 0.4, 0.9])
    assert rates == pytest.approx([0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.01])
    assert not schedule.is_over
    schedule.end_epoch(0.9)
    assert schedule.is_over
    schedule.end_task()
    assert model.weight.item() == 5  # that of the best loss, 0.4


def test_early_stopping_counts_epochs_since_the_best():
    _, schedule, model = follow({"early_stopping": 2}, [1.0, 0.5, 0.6])
    assert not schedule.is_over
    schedule.end_epoch(float("nan"))
    assert schedule.is_over
    schedule.end_task()
    assert model.weight.item() == 1


def test_cosine_falls_to_zero_within_each_task(tmp_path, monkeypatch):
    rates, step = [], METHODS["sgd"].step

    def note(self, *batch):
        rates.append(self.optimizer.param_groups[0]["lr"])
        return step(self, *batch)

    monkeypatch.setattr(METHODS["sgd"], "step", note)
    steps = execute(config(schedule="cosine"), tmp_path).steps // 2
    expected = [0.1 * (1 + cos(pi * number / steps)) / 2 for number in range(steps)]
    assert rates == pytest.approx(expected * 2)


def test_a_task_that_ends_early_takes_fewer_steps_and_ends_with_its_best_weights(tmp_path):
    record = execute(config(epochs=40, early_stopping=1), tmp_path)
    assert record.status == "done"
    assert record.steps < 2 * 40 * 10


@pytest.mark.parametrize("method", ["sgd", "sfao", "drift-bound", "joint"])
@pytest.mark.parametrize(
    "settings",
    [PLATEAU, {"early_stopping": 2, **AUGMENTED}, {"schedule": "cosine"}],
    ids=["plateau", "early stopping and augmentation", "cosine"],
)
def test_stopped_anywhere_it_ends_bit_for_bit_the_same(tmp_path, method, settings):
    whole = execute(config(method, **settings), tmp_path / "whole")
    folder = tmp_path / "parts"
    for stop in (7, 24, 25, 33, 61):
        if stop < whole.steps:
            with pytest.raises(Interrupted):
                execute(config(method, **settings), folder, resume=True, stopping=StopAt(folder, stop))
    record = execute(config(method, **settings), folder, resume=True)
    assert (record.weights_sha256, record.steps) == (whole.weights_sha256, whole.steps)
    assert record.accuracy_matrix == whole.accuracy_matrix


def test_augmented_images_are_flipped_and_moved_by_at_most_four_pixels():
    images = torch.zeros(64, 1, 12, 12)
    images[:, :, 5, 4] = 1
    generator = torch.Generator().manual_seed(0)
    flipped = augment_images(images, ["flip"], generator)
    assert {tuple(place) for place in flipped.nonzero()[:, 2:].tolist()} == {(5, 4), (5, 7)}
    moved = augment_images(images, ["crop"], generator).nonzero()[:, 2:]
    assert len(moved) == 64
    assert {(moved[:, 0].min() - 5).item(), (moved[:, 0].max() - 5).item()} == {-4, 4}
    assert len(moved.unique(dim=0)) > 30
    assert torch.equal(images, torch.zeros_like(images).index_put_((*images.nonzero().T,), torch.tensor(1.0)))


def test_augmentation_changes_training_and_nothing_without_it(tmp_path):
    settings = ({}, {"augment": []}, {"augment": "crop"})
    plain, none, crop = (execute(config(**each), tmp_path / str(number)) for number, each in enumerate(settings))
    assert plain.weights_sha256 == none.weights_sha256 != crop.weights_sha256
    assert config(augment="crop,flip") == config(augment=["flip", "crop"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"schedule": "plateau", "validation": 0}, "`schedule: plateau` needs examples held out: `validation` must be"),
        (
            {"early_stopping": 3, "validation": 0},
            "`early_stopping` needs examples held out: `validation` must",
        ),
        ({"early_stopping": 0}, "`early_stopping`: input should be greater than or equal to 1, got 0"),
        ({"schedule": "step"}, "`schedule`: input should be 'constant', 'cosine' or 'plateau', got 'step'"),
        ({**PLATEAU, "lr_factor": 1}, "`lr_factor`: input should be greater than 1, got 1"),
        ({**PLATEAU, "lr_min": 0}, "`lr_min`: input should be greater than 0, got 0"),
        ({**PLATEAU, "lr_min": 0.1}, "`lr_min` must be below `lr`, 0.1, or a task ends at once, got 0.1"),
        ({"schedule": "cosine", "guard.kind": "measured"}, "`guard` must be left out with `schedule: cosine`"),
        ({"augment": "flip,rotate"}, r"`augment\.\d`: input should be 'flip' or 'crop', got 'rotate'"),
        ({"augment": 3}, "`augment`: input should be a valid list, got 3"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_a_line(settings, message):
    with pytest.raises(ConfigError, match=message) as caught:
        config(**settings)
    assert "\n" not in str(caught.value)


def test_a_method_with_weights_for_each_task_has_no_best_weights():
    with pytest.raises(ConfigError, match="`early_stopping` must be left out with trgp"):
        config("trgp", scenario="task", early_stopping=2)


def test_permuted_pixels_and_models_for_other_inputs_are_refused_before_anything_is_written(tmp_path, digits):
    permuted = configure("permuted-mnist-5k", "sgd", settings={"augment": "flip"})
    with pytest.raises(ConfigError, match="`augment` must be left out with permuted-mnist-5k, whose pixels are"):
        set_up(permuted, digits, tmp_path / "run")
    with pytest.raises(ConfigError, match="patch"):
        set_up(config(model={"name": "vit", "patch": 5}), digits, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    Run(config(**AUGMENTED), digits, tmp_path / "run")
