"""Searches and grids with real runs, cut small: spaces, resumed studies, refused folders, and what they write."""

import json
import os
import shutil
from functools import partial

import pytest
import yaml

from sfao.lab.methods import METHODS
from sfao.lab.methods.search_range import Choice, Range
from sfao.lab.run.errors import ConfigError, FolderError, Interrupted
from sfao.lab.run.loop import execute
from sfao.lab.run.record import load_record
from sfao.lab.tune import BEST, JOURNAL, find_best, make_search, parse_search, tune, write_results
from tests.lab.methods.scenarios import set_scenario

SMALL = {"fraction": 0.1, "epochs": 1, "tasks": 2, "model.hidden": 8}
SPACE = {"options.strength": Range(10.0, 1e6, log=True), "options.fisher": Choice(("exact", "batch"))}
GRID = {"options.strength": Choice((10, 1e6)), "options.fisher": Choice(("exact", "batch"))}


def search(method="ewc", seeds=(0,), space=SPACE, **settings):
    return make_search("split-mnist-5k", method, seeds, {**SMALL, **settings}, space)


def choose(*texts, method="sfao", **fixed):
    return make_search("split-mnist-5k", method, [0], fixed, dict(parse_search(text) for text in texts)).space


def run_here(jobs, *, refill, watch, resume, **how):
    """Do the jobs one after the other in this process."""
    waiting = list(jobs) or list(refill())
    while waiting:
        job = waiting.pop(0)
        watch(job, execute(job.config, job.folder, resume=resume))
        waiting = waiting or list(refill())


def outcomes(trials):
    return [(trial.number, trial.settings, trial.score) for trial in trials]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """(folder, trials) of a study that nothing interrupts."""
    out = tmp_path_factory.mktemp("reference") / "study"
    return out, tune(search(), out, trials=4, run=run_here)


# -- Spaces ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "where", "kind"),
    [
        ("options.capacity", "50:400:log", int),
        ("options.accept_above", "0:1", float),
        ("batch_size", "8:64", int),
        ("lr", "1:2", float),
        ("model.hidden", "8:16", int),
    ],
)
def test_a_range_has_integers_where_the_setting_takes_no_other_numbers(name, where, kind):
    (found,) = choose(f"{name}={where}").values()
    assert (type(found.low), type(found.high)) == (kind, kind)
    assert str(found) == where


@pytest.mark.parametrize("method", METHODS)
def test_the_space_of_a_method_breaks_no_rule_of_its_own(method):
    make = partial(make_search, "split-mnist-5k", method, [0], set_scenario(method), {})
    if METHODS[method].search_space:
        assert list(make().space) == [f"options.{name}" for name in METHODS[method].search_space]
    else:
        with pytest.raises(ConfigError, match=f"`--search` must name settings of {method}, .*, got none"):
            make()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("options.accept_above", "`--search` must be name=low:high, .*, got 'options.accept_above'"),
        ("options.accept_above=1:0", "must go from a lower to a higher number, got '1:0'"),
        ("lr=0:1:log", "`--search lr` must start above 0 to be `log`, got '0:1:log'"),
        ("lr=0:1:lin", "`--search` must be name=low:high, .*, got 'lr=0:1:lin'"),
        ("lr=a:b", "got 'a:b'"),
        ("lr=0:inf", "got '0:inf'"),
        ("lr=1,1", "`--search lr` must list two or more different values, got '1,1'"),
        ("options.acept_above=0:1", "did you mean 'accept_above'?"),
        ("options.accept_above=0:2", "`accept_above` must be in .-1, 1., got 2"),
        ("options.capacity=0.5:400", "`capacity` must be a whole number of at least 1, got 0.5"),
        ("options.target=loss,lgit", "`options.target`: input should be 'loss' or 'logit', got 'lgit'"),
        ("seed=0:9", "`seed` must be the same in all trials"),
        ("fraction=0.1:1", "`fraction` must be the same in all trials"),
    ],
)
def test_bad_searches(text, message):
    with pytest.raises(ConfigError, match=message) as refused:
        choose(text)
    assert "\n" not in str(refused.value)


# -- Studies ---------------------------------------------------------------------------------------------------------


def test_the_score_of_a_trial_is_the_mean_accuracy_of_its_runs_on_validation_images(reference, tmp_path):
    out, trials = reference
    assert [trial.number for trial in trials] == [0, 1, 2, 3]
    for trial in trials:
        record = load_record(out / f"trial-{trial.number}-0")
        assert record.metrics["average_accuracy"] == trial.score
        assert record.config["evaluate"] == "validation"
        assert record.config["options"]["strength"] == trial.settings["options.strength"]
    (both,) = tune(search(seeds=(0, 1)), tmp_path / "two", trials=1, workers=2)
    scores = [load_record(tmp_path / "two" / f"trial-0-{seed}").metrics["average_accuracy"] for seed in (0, 1)]
    assert both.score == pytest.approx(sum(scores) / 2)
    assert both.settings == trials[0].settings


def test_an_interrupted_study_ends_like_one_that_was_not(reference, tmp_path):
    out, ended = tmp_path / "study", []
    with pytest.raises(Interrupted):
        tune(search(), out, trials=4, workers=1, ended=ended.append, stopping=lambda: len(ended) > 0)
    assert 1 <= len(ended) < 4
    heard = []
    assert outcomes(tune(search(), out, trials=3, run=run_here, ended=heard.append)) == outcomes(reference[1][:3])
    assert outcomes(heard) == outcomes(reference[1][:3])
    assert outcomes(tune(search(), out, trials=4, run=run_here)) == outcomes(reference[1])
    assert outcomes(tune(search(), out, trials=2, run=run_here)) == outcomes(reference[1])


def test_a_grid_has_every_combination_and_resumes(tmp_path):
    out, ended = tmp_path / "grid", []

    def run_one(jobs, *, refill, watch, resume, **how):
        (job,) = refill()
        watch(job, execute(job.config, job.folder))
        raise Interrupted

    with pytest.raises(Interrupted):
        tune(search(space=GRID), out, trials=1, is_grid=True, run=run_one, ended=ended.append)
    assert len(ended) == 1
    trials = tune(search(space=GRID), out, trials=1, is_grid=True, run=run_here)
    assert [tuple(trial.settings.values()) for trial in trials] == [
        (strength, fisher) for strength in (10, 1e6) for fisher in ("exact", "batch")
    ]
    assert outcomes(trials[:1]) == outcomes(ended)
    with pytest.raises(ConfigError, match=r"`--grid` needs lists of values, .*, got options\.strength=10:1000000:log"):
        tune(search(), tmp_path / "other", trials=1, is_grid=True, run=run_here)


def test_trials_that_diverge_or_break_a_rule_are_recorded_and_the_study_continues(tmp_path):
    # Each value is fine by itself; together, one pair of thresholds breaks the rule of the gate.
    space = {
        "lr": Choice((0.01, 1e30)),
        "options.accept_above": Choice((0.5, 0.9)),
        "options.discard_below": Choice((-1.0, 0.8)),
    }
    of_sfao = search("sfao", space=space)
    trials = tune(of_sfao, tmp_path / "study", trials=12, run=run_here, seed=1)
    diverged = [trial for trial in trials if trial.settings["lr"] == 1e30 and trial.records]
    wrong = [trial for trial in trials if list(trial.settings.values())[1:] == [0.5, 0.8]]
    done = [trial for trial in trials if trial.score is not None]
    assert min(len(diverged), len(wrong), len(done)) > 0
    assert len(done) + len(diverged) + len(wrong) == len(trials) == 12
    assert all("seed 0 diverged: " in trial.error and trial.score is None for trial in diverged)
    assert all("discard_below" in trial.error and not trial.records for trial in wrong)
    again = tune(of_sfao, tmp_path / "study", trials=12, run=run_here, seed=1)
    assert [trial.error for trial in again] == [trial.error for trial in trials]


# -- Folders ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def study(reference, tmp_path):
    return shutil.copytree(reference[0], tmp_path / "study")


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"method": "si", "space": {}}, "`method` is ewc there and si here"),
        ({"epochs": 2}, "`epochs` is 1 there and 2 here"),
        ({"space": {**SPACE, "options.strength": Range(1, 10)}}, r"`options\.strength` is 10:1000000:log there and"),
        ({"seeds": (1,)}, r"`seeds` is \[0\] there and \[1\] here"),
    ],
)
def test_another_study_is_refused_and_nothing_changes(study, other, message):
    before = contents(study)
    with pytest.raises(FolderError, match=message):
        tune(search(**other), study, trials=4, run=run_here)
    assert contents(study) == before


@pytest.mark.parametrize("name", [JOURNAL, f"{JOURNAL}.lock", "trials.json", "trial-0-0"])
def test_links_in_a_study_are_not_followed(study, tmp_path, name):
    target = tmp_path / "target"
    if (study / name).is_dir():
        shutil.move(study / name, target)
    else:
        target.write_bytes(b"a line\nand one without its end")
        (study / name).unlink(missing_ok=True)
    os.symlink(target, study / name)
    before = target.read_bytes() if target.is_file() else contents(target)
    with pytest.raises(FolderError, match=rf"must be a folder without links, got the link .*{name}$"):
        tune(search(), study, trials=5, run=run_here)
    assert (target.read_bytes() if target.is_file() else contents(target)) == before


def test_a_journal_with_a_line_cut_short_resumes_and_other_damage_is_refused(reference, study):
    with open(study / JOURNAL, "ab") as file:
        file.write(b'{"op_code": 5, "worker_')
    assert outcomes(tune(search(), study, trials=4, run=run_here)) == outcomes(reference[1])
    for damage in (b"no journal\n\n", b"[" * 100_000 + b"\n", b'{"op_code": 99}\n', b"\xff\xfe\n\n"):
        (study / JOURNAL).write_bytes(damage)
        with pytest.raises(FolderError, match=rf"{JOURNAL} must be the journal of a study"):
            tune(search(), study, trials=4, run=run_here)


def test_a_folder_with_other_files_and_problems_of_the_data_are_refused_before_anything_is_written(tmp_path):
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(FolderError, match="`out` must be new or hold a study"):
        tune(search(), tmp_path, trials=1)
    out = tmp_path / "study"
    with pytest.raises(ConfigError, match="`validation` must hold out some and leave some of the 4 training examples"):
        tune(search(fraction=0.01, validation=0.1), out, trials=1)
    with pytest.raises(ConfigError, match="`tasks` must divide the 10 classes"):
        tune(search(tasks=3), out, trials=1)
    assert not out.exists()


# -- Results ---------------------------------------------------------------------------------------------------------


def test_what_is_written_has_the_best_settings_for_a_run(reference, study):
    trials = reference[1]
    summary = write_results(search(), trials, study)
    assert summary == json.loads((study / "trials.json").read_text())
    best = find_best(trials)
    assert best.score == max(trial.score for trial in trials)
    assert summary["best"]["number"] == best.number
    assert (study / "trials.md").read_text().count("| best |") == 1
    held = yaml.safe_load((study / BEST).read_text())
    assert held["options"]["strength"] == best.settings["options.strength"]
    assert not {"seed", "validation", "evaluate"} & held.keys()


def test_without_a_finished_trial_there_is_no_best_file(study):
    (study / BEST).write_text("of earlier")
    summary = write_results(search(), [], study)
    assert summary["best"] is None
    assert not (study / BEST).exists()
