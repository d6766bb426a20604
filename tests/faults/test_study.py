"""One damaged bit in the folder of a study: it is refused, or its trials are what they were."""

import json
import random
import shutil

import pytest

from sfao.lab.methods.search_range import Choice, Range
from sfao.lab.run.errors import ConfigError, FolderError
from sfao.lab.run.execute import execute
from sfao.lab.tune.search import make_search
from sfao.lab.tune.tune import tune
from tests.faults.tally import in_soak
from tests.faults.test_damage import flip

SMALL = {"fraction": 0.05, "epochs": 1, "tasks": 2, "model.hidden": 4, "batch_size": 50}
SPACE = {"options.strength": Range(10.0, 1e6, log=True), "options.fisher": Choice(("exact", "batch"))}


def run_here(jobs, *, refill, watch, resume, **how):
    """Do the jobs one after the other in this process, as a pool does."""
    waiting = list(jobs) or list(refill())
    while waiting:
        job = waiting.pop(0)
        watch(job, execute(job.config, job.folder, resume=resume))
        waiting = waiting or list(refill())


def list_outcomes(out):
    found = tune(make_search("split-mnist-5k", "ewc", (0,), SMALL), SPACE, out, trials=2, run=run_here)
    return [(each.number, each.settings, each.score) for each in found]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(a study, its outcomes)"""
    out = tmp_path_factory.mktemp("made") / "study"
    return out, list_outcomes(out)


@pytest.mark.parametrize("name", ["journal.log", "study.yaml", "trial-0-0/record.json"])
def test_a_bit_of_a_study(made, tmp_path, attack, name):
    tried = attack(name.rpartition("/")[2], "a flipped bit in the folder of a study")
    source, known = made
    chance = random.Random(name)
    for number in range(in_soak(4, 400)):
        out = shutil.copytree(source, tmp_path / str(number))
        label = flip(out / name, chance)

        def trial(out=out):
            try:
                found = list_outcomes(out)
            except (FolderError, ConfigError) as error:
                found = str(error)
            assert found == known or (isinstance(found, str) and str(out) in found), found

        tried.try_it(label, trial)
        shutil.rmtree(out)


def test_another_score_or_setting_in_the_journal_is_refused(made, tmp_path, attack):
    tried = attack("journal.log", "another score or setting of a trial")
    source, known = made
    _, settings, score = known[0]
    for text in (repr(score), repr(settings["options.strength"])):
        out = shutil.copytree(source, tmp_path / text)
        journal = (out / "journal.log").read_text()
        assert text in journal
        (out / "journal.log").write_text(journal.replace(text, f"{text[:-1]}{(int(text[-1]) + 5) % 10}"))

        def trial(out=out):
            with pytest.raises(FolderError, match=r"journal\.log must tell what the records of trial 0 tell"):
                list_outcomes(out)

        tried.try_it(text, trial)


@pytest.mark.parametrize("name", ["user_attrs", "system_attrs", "distributions", "params", "values"])
def test_parts_of_a_trial_of_another_type_are_damage(made, tmp_path, attack, name):
    tried = attack("journal.log", "a number or a text in the place of what a trial holds")
    source, known = made
    for value in (7, "text", ["list"], None):
        out = shutil.copytree(source, tmp_path / repr(value))
        journal = [json.loads(line) for line in (out / "journal.log").read_text().splitlines()]
        (created, *_) = [line for line in journal if "distributions" in line]
        created[name] = value
        (out / "journal.log").write_text("".join(json.dumps(line) + "\n" for line in journal))

        def trial(out=out):
            try:
                found = list_outcomes(out)
            except FolderError as error:
                found = str(error)
            assert found == known or "journal.log must" in found

        tried.try_it(f"{name} {value!r}", trial)
