"""Studies with real runs, cut small: interrupted, diverging, refused."""

import pytest
from filelock import FileLock

from sfao.lab.methods.search_range import Choice, Range
from sfao.lab.run.errors import ConfigError, FolderError, Interrupted
from sfao.lab.run.record import load_record
from sfao.lab.tune.search import make_search
from sfao.lab.tune.tune import tune

SMALL = {"fraction": 0.1, "epochs": 1, "tasks": 2, "model.hidden": 8}
SPACE = {"options.strength": Range(10.0, 1e6, log=True), "options.fisher": Choice(("exact", "batch"))}


def search(method="ewc", seeds=(0,), **settings):
    return make_search("split-mnist-5k", method, seeds, {**SMALL, **settings})


def outcomes(candidates):
    return [(each.number, each.settings, each.score) for each in candidates]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """A study that nothing disturbs."""
    out = tmp_path_factory.mktemp("reference") / "study"
    return out, tune(search(), SPACE, out, trials=4, workers=1)


def test_each_trial_has_its_runs_and_their_mean_on_validation_images(reference, tmp_path):
    out, candidates = reference
    assert [each.number for each in candidates] == [0, 1, 2, 3]
    for each in candidates:
        record = load_record(out / f"trial-{each.number}-0")
        assert record.metrics["average_accuracy"] == each.score
        assert record.config["evaluate"] == "validation"
        assert record.config["options"]["strength"] == each.settings["options.strength"]
    (both,) = tune(search(seeds=(0, 1)), SPACE, tmp_path / "two", trials=1, workers=2)
    scores = [load_record(tmp_path / "two" / f"trial-0-{seed}").metrics["average_accuracy"] for seed in (0, 1)]
    assert both.score == pytest.approx(sum(scores) / 2)
    assert both.settings == candidates[0].settings


def test_interrupted_and_gone_on_with_it_is_the_same_study_and_more_trials_extend_it(reference, tmp_path):
    out, ended = tmp_path / "study", []
    with pytest.raises(Interrupted):
        tune(search(), SPACE, out, trials=4, workers=1, ended=ended.append, stopping=lambda: len(ended) > 0)
    assert 1 <= len(ended) < 4
    heard = []
    candidates = tune(search(), SPACE, out, trials=3, workers=1, ended=heard.append)
    assert outcomes(candidates) == outcomes(heard) == outcomes(reference[1][:3])
    assert outcomes(tune(search(), SPACE, out, trials=4, workers=1)) == outcomes(reference[1])
    assert outcomes(tune(search(), SPACE, out, trials=2)) == outcomes(reference[1])


def test_a_trial_that_diverges_or_is_wrong_as_a_whole_is_recorded_and_the_study_goes_on(tmp_path):
    # Each value is fine by itself; together, one pair of thresholds breaks the rule of the gate.
    space = {
        "lr": Choice((0.01, 1e30)),
        "options.accept_above": Choice((0.5, 0.9)),
        "options.discard_below": Choice((-1.0, 0.8)),
    }
    candidates = tune(search("sfao"), space, tmp_path / "study", trials=12, workers=1, seed=1)
    assert len(candidates) == 12
    diverged = [each for each in candidates if each.settings["lr"] == 1e30 and each.records]
    wrong = [
        each
        for each in candidates
        if each.settings["options.discard_below"] == 0.8 and each.settings["options.accept_above"] == 0.5
    ]
    done = [each for each in candidates if each.score is not None]
    assert diverged
    assert wrong
    assert done
    assert all("seed 0 diverged: " in each.error and each.score is None for each in diverged)
    assert all("discard_below" in each.error and not each.records for each in wrong)
    assert len(done) + len(diverged) + len(wrong) == 12
    again = tune(search("sfao"), space, tmp_path / "study", trials=12, workers=1, seed=1)
    assert [each.error for each in again] == [each.error for each in candidates]


def test_what_is_wrong_is_found_before_anything_is_written(tmp_path):
    out = tmp_path / "study"
    with pytest.raises(ConfigError, match="`validation` must hold out some and leave some of the 4 training examples"):
        tune(search(fraction=0.01, validation=0.1), SPACE, out, trials=1)
    with pytest.raises(ConfigError, match="`tasks` must divide the 10 classes"):
        tune(search(tasks=3), SPACE, out, trials=1)
    assert not out.exists()


def test_a_damaged_record_is_named(tmp_path):
    out = tmp_path / "study"
    tune(search(), SPACE, out, trials=1, workers=1)
    (out / "trial-0-0" / "record.json").write_text('{"half')
    with pytest.raises(FolderError, match=r"trial-0-0/record\.json must be the record of a run, but it is damaged"):
        tune(search(), SPACE, out, trials=1)


def test_two_studies_cannot_share_a_folder_at_a_time(tmp_path):
    with FileLock(tmp_path / ".lock"), pytest.raises(FolderError, match="another process is tuning in"):
        tune(search(), SPACE, tmp_path, trials=1)
