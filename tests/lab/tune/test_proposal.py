"""Proposals: within the space, readable, a function of the trials so far, and better than chance."""

from statistics import median

import optuna
import pytest
from optuna.trial import TrialState, create_trial

from sfao.lab.methods.search_range import Choice, Range
from sfao.lab.tune.proposal import make_distributions, propose

SPACE = {"a": Range(0.0, 1.0), "b": Range(50, 400, log=True), "c": Choice(("loss", "logit", None))}


@pytest.fixture(autouse=True)
def _quiet():
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def study(count, seed=0, score=lambda chosen: -((chosen["a"] - 0.3) ** 2)):
    """The trials of a study that was never interrupted; every fifth one failed."""
    trials = []
    for number in range(count):
        chosen = propose(trials, SPACE, seed)
        ending = {"state": TrialState.FAIL} if number % 5 == 4 else {"value": score(chosen)}
        trials.append(create_trial(params=chosen, distributions=make_distributions(SPACE), **ending))
    return trials


def test_values_are_of_the_space_and_readable():
    for trial in study(25):
        chosen = trial.params
        assert 0 <= chosen["a"] <= 1
        assert len(repr(chosen["a"]).rstrip("0").lstrip("0.")) <= 4 or chosen["a"] < 1e-4
        assert isinstance(chosen["b"], int)
        assert 50 <= chosen["b"] <= 400
        assert chosen["c"] in ("loss", "logit", None)


def test_rounding_stays_in_the_range():
    narrow = {"a": Range(0.123456, 0.123457)}
    assert 0.123456 <= propose([], narrow, 0)["a"] <= 0.123457


def test_the_same_trials_and_seed_give_the_same_proposal_and_others_do_not():
    trials = study(14)
    assert propose(trials, SPACE, 0) == propose(trials, SPACE, 0)
    assert propose(trials, SPACE, 0) != propose(trials, SPACE, 1)
    assert [trial.params for trial in study(14)] == [trial.params for trial in trials]
    assert len({str(trial.params) for trial in trials}) == 14


def test_it_learns_from_the_trials():
    early, late = [], []
    for seed in range(3):
        distances = [abs(trial.params["a"] - 0.3) for trial in study(40, seed)]
        early, late = early + distances[:10], late + distances[-10:]
    assert median(late) < 0.7 * median(early)
