"""The folder of a study: what it may hold, and what a killed process leaves in it."""

import optuna
import pytest
from optuna.trial import TrialState

from sfao.lab.methods.search_range import Choice, Range
from sfao.lab.run.errors import FolderError
from sfao.lab.tune.search import make_search
from sfao.lab.tune.study import JOURNAL, STUDY, add_trial, check_study, describe_study, end_trial, open_study

SPACE = {"options.strength": Range(10.0, 1e6, log=True)}
DATA = {"name": "mnist-5k", "train": 4000}


def describe(benchmark="split-mnist-5k", method="ewc", seeds=(0,), space=None, seed=0, data=None, preset=None, **fixed):
    search = make_search(benchmark, method, seeds, fixed, preset=preset or "recommended")
    return describe_study(search, space or SPACE, seed, data or DATA)


@pytest.fixture
def out(tmp_path):
    """A study with one trial that is done, one that failed and one under way."""
    folder = tmp_path / "study"
    folder.mkdir()
    study = open_study(folder, describe())
    for number, strength in enumerate((20.0, 300.0, 4000.0)):
        assert add_trial(study, SPACE, {"options.strength": strength}) == number
    end_trial(study, 0, 0.75)
    end_trial(study, 1, None)
    return folder


def states(study):
    return [trial.state for trial in study.trials]


THREE = [TrialState.COMPLETE, TrialState.FAIL, TrialState.RUNNING]


def test_what_was_tried_is_read_back(out):
    check_study(out, describe())
    study = open_study(out, describe())
    assert states(study) == THREE
    assert [trial.params["options.strength"] for trial in study.trials] == [20, 300, 4000]
    assert study.trials[0].value == 0.75


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"benchmark": "permuted-mnist-5k"}, "`benchmark` is split-mnist-5k there and permuted-mnist-5k here"),
        ({"method": "si"}, "`method` is ewc there and si here"),
        (
            {"space": {"options.strength": Range(1, 10)}},
            "`search` is options.strength=10:1000000:log there and options.strength=1:10 here",
        ),
        (
            {"space": {**SPACE, "options.fisher": Choice(("exact", "batch"))}},
            "`search` is without there and options.fisher=exact,batch here",
        ),
        ({"epochs": 3}, "`settings` is epochs=5 there and epochs=3 here"),
        ({"seeds": (0, 1)}, r"`seeds` is \[0\] there and \[0, 1\] here"),
        ({"seed": 1}, "`seed` is 0 there and 1 here"),
        ({"data": {**DATA, "train": 400}}, "`data` is train=4000 there and train=400 here"),
    ],
)
def test_another_study_is_refused_in_a_line_that_names_both_and_nothing_is_lost(out, other, message):
    before = {path: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(FolderError, match=f"`out` must be new or hold this study, but .* holds another: {message}$"):
        check_study(out, describe(**other))
    assert {path: path.read_bytes() for path in out.iterdir()} == before


def test_a_setting_that_is_younger_than_the_study_is_no_difference(out):
    lines = (out / STUDY).read_text().splitlines(keepends=True)
    (out / STUDY).write_text("".join(line for line in lines if "fisher_samples" not in line))
    check_study(out, describe())


def test_folders_that_hold_something_else_are_refused(tmp_path):
    check_study(tmp_path / "new", describe())
    (tmp_path / ".lock").touch()
    check_study(tmp_path, describe())
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(FolderError, match=r"`out` must be new or hold a study, but .* holds other files"):
        check_study(tmp_path, describe())
    with pytest.raises(FolderError, match="`out` must be a folder, got the file"):
        check_study(tmp_path / "thesis.tex", describe())


@pytest.mark.parametrize("content", ["", "[1]", "benchmark: {", "benchmark: split-mnist-5k\nmethod: 3\n"])
def test_a_damaged_description_is_named(out, content):
    (out / STUDY).write_text(content)
    with pytest.raises(FolderError, match=r"study\.yaml(:1:)? must "):
        check_study(out, describe())


def test_a_line_that_was_cut_off_and_a_lock_that_was_left_are_no_obstacle(out):
    with open(out / JOURNAL, "ab") as journal:
        journal.write(b'{"op_code":6,"tri')
    (out / f"{JOURNAL}.lock").touch()
    study = open_study(out, describe())
    assert states(study) == THREE
    end_trial(study, 2, 0.5)
    assert states(open_study(out, describe())) == [*THREE[:2], TrialState.COMPLETE]


@pytest.mark.parametrize("line", [b"{}\n{}\n", b"\xff\xfe\n", b"[1]\n", b"nonsense\n{}\n"])
def test_a_damaged_journal_is_named_and_left_as_it_is(out, line):
    text = (out / JOURNAL).read_bytes() + line
    (out / JOURNAL).write_bytes(text)
    with pytest.raises(FolderError, match=r"journal\.log must be the journal of a study, but it is damaged"):
        open_study(out, describe())
    assert (out / JOURNAL).read_bytes() == text


def test_optuna_itself_reads_the_journal(out):
    """Its own tools, such as a dashboard, work on a study."""
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(out / JOURNAL)))
    (summary,) = optuna.get_all_study_summaries(storage)
    assert summary.n_trials == 3
