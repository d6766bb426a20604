"""The folder of a study: what is searched, in `study.yaml`, and its trials, in Optuna's journal."""

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

import optuna
import yaml
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from sfao.lab.console import quote
from sfao.lab.methods.search_range import SearchSpace
from sfao.lab.report.comparison import flatten_settings
from sfao.lab.run.config import read_yaml
from sfao.lab.run.errors import FolderError, reraise_as
from sfao.lab.run.files import write_text
from sfao.lab.safe_io import MAX_LINE, InputError, iter_lines, parse_json
from sfao.lab.tune.proposal import make_distributions
from sfao.lab.tune.search import Search

STUDY, JOURNAL = "study.yaml", "journal.log"
NAME = "tune"
TUNING = "tuning"


def describe_study(search: Search, space: SearchSpace, seed: int, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what makes two studies the same one, in plain containers."""
    settings = flatten_settings(search.configure({}).model_dump())
    left_out = {"benchmark", "method", *space}
    return {
        "benchmark": search.benchmark,
        "method": search.method,
        "search": {name: str(where) for name, where in space.items()},
        "settings": {name: value for name, value in settings.items() if name not in left_out},
        "seeds": list(search.seeds),
        "seed": seed,
        "data": dict(data),
    }


def check_study(out: Path, wanted: Mapping[str, Any]) -> None:
    """Refuse a folder that holds anything but this study; nothing is written."""
    if out.exists() and not out.is_dir():
        raise FolderError(f"`out` must be a folder, got the file {out}")
    if not out.exists() or all(path.name.startswith(".") for path in out.iterdir()):
        return
    if not (out / STUDY).exists():
        raise FolderError(f"`out` must be new or hold a study, but {out} holds other files")
    with reraise_as(FolderError):
        held = read_yaml(out / STUDY)
    for name, here in wanted.items():
        there: Any = held.get(name)
        if type(there) is not type(here):
            raise FolderError(f"{out / STUDY} must describe a study, but it is damaged: `{name}` is {there!r}")
        if name == "settings":  # one that did not exist when the study began had the value that is its default now
            here = {setting: value for setting, value in here.items() if setting in there}
        if there != here:
            raise FolderError(
                f"`out` must be new or hold this study, but {out} holds another: "
                f"`{name}` is {_write(there, here)} there and {_write(here, there)} here"
            )


def _write(value: Any, other: Any) -> str:
    """Return a value in words; of a mapping, the part in which it differs from the other."""
    if not isinstance(value, Mapping):
        return str(value)
    own = {name: each for name, each in value.items() if name not in other or other[name] != each}
    return ", ".join(f"{name}={each}" for name, each in own.items()) or "without"


def open_study(out: Path, description: Mapping[str, Any]) -> optuna.Study:
    """Return the study in this folder, which must be locked; a new one where there is none."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if not (out / STUDY).exists():
        write_text(out / STUDY, yaml.safe_dump(dict(description), sort_keys=False))
    journal = out / JOURNAL
    _repair(journal)
    _check_journal(journal)
    lock = JournalFileOpenLock(str(journal))
    try:
        storage = JournalStorage(JournalFileBackend(str(journal), lock_obj=lock))
        study = optuna.create_study(storage=storage, study_name=NAME, direction="maximize", load_if_exists=True)
        _ = study.trials
    except Exception as error:  # Optuna replays the journal as it is, and fails in any way
        raise FolderError(f"{journal} must be the journal of a study, but it is damaged: {quote(error)}") from error
    return study


def check_trials(study: optuna.Study, space: SearchSpace, out: Path) -> None:
    """Refuse a journal whose trials are not of this search."""
    fault = "" if study.directions == [StudyDirection.MAXIMIZE] else "it has another aim"
    try:
        for trial in study.trials:
            fault = fault or _find_fault(trial, space)
    except Exception as error:  # Optuna keeps what it replays as it is, of any type
        fault = quote(error)
    if fault:
        raise FolderError(f"{out / JOURNAL} must be the journal of this study, but it is damaged: {fault}")


def _find_fault(trial: FrozenTrial, space: SearchSpace) -> str:
    """Return what is wrong with a trial; empty when nothing is."""
    if trial.state not in (TrialState.RUNNING, TrialState.COMPLETE, TrialState.FAIL):
        return f"trial {trial.number} is {trial.state.name.lower()}"
    if trial.distributions != make_distributions(space) or trial.params.keys() != space.keys():
        return f"trial {trial.number} is of another search"
    if len(trial.values or ()) != (trial.state == TrialState.COMPLETE) or not all(map(isfinite, trial.values or ())):
        return f"trial {trial.number} must have one accuracy once it is complete, got {quote(trial.values)}"
    if not isinstance(trial.user_attrs.get("error", ""), str):
        return f"trial {trial.number} has an error that is no text"
    return ""


def _repair(journal: Path) -> None:
    """Take away what a process that was killed leaves behind: a lock, and a line that was not written to its end."""
    journal.with_name(f"{journal.name}.lock").unlink(missing_ok=True)
    if journal.exists():
        text = journal.read_bytes()
        whole = text.rfind(b"\n") + 1
        if whole < len(text):
            with open(journal, "r+b") as file:
                file.truncate(whole)


def _check_journal(journal: Path) -> None:
    """Refuse lines that are no JSON within limits, before Optuna reads them."""
    if journal.exists():
        for number, line in enumerate(iter_lines(journal, MAX_LINE), start=1):
            try:
                parse_json(line, finite=False)
            except InputError as error:
                raise FolderError(
                    f"{journal} must be the journal of a study, but it is damaged: line {number} {error}"
                ) from error


def add_trial(study: optuna.Study, space: SearchSpace, chosen: Mapping[str, Any], error: str = "") -> int:
    """Add a trial that has begun, or one that failed at once for the reason given, and return its number."""
    study.add_trial(
        create_trial(
            state=TrialState.FAIL if error else TrialState.RUNNING,
            params=dict(chosen),
            distributions=make_distributions(space),
            user_attrs={"error": error} if error else {},
        )
    )
    return len(study.trials) - 1


def end_trial(study: optuna.Study, number: int, score: float | None) -> None:
    """End a trial with its score, or as failed."""
    if score is None:
        study.tell(number, state=TrialState.FAIL)
    else:
        study.tell(number, score)
