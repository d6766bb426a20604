"""Whatever stands in a file that a command reads, it ends as documented, in text."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from sfao.lab.report.runs import load_runs
from tests.faults.entry import call, runs_in_this_process
from tests.faults.hostile import mutate_json, mutate_json_lines, mutate_yaml
from tests.faults.tally import Attack, in_parts, in_soak, list_part
from tests.faults.tiny import NAME

TARGET = "commands that read files"

RUN = ("run", NAME, "--method", "sfao", "--out", "run")
COMPARE = ("compare", NAME, "--methods", "sgd,sfao", "--seeds", "1", "--out", "compared")
TUNE = (*("tune", NAME, "--method", "sgd", "--seeds", "1", "--trials", "1", "--validation", "0.5"),)
GRID = (*TUNE, "--search", "lr=0.1,0.2", "--grid", "--out", "grid")
TUNE = (*TUNE, "--search", "lr=0.1:0.2", "--out", "tuned")
REPRODUCE = ("reproduce", "table1", "--dry-run", "--quick", "--out", "reproduced")

Mutate = Callable[[Random, bytes], bytes]
#: {file: (how it is damaged, the commands that read it)}
READERS: dict[str, tuple[Mutate, list[tuple[str, ...]]]] = {
    "run/record.json": (mutate_json, [RUN, (*RUN, "--resume"), (*RUN, "--json")]),
    "run/config.yaml": (mutate_yaml, [RUN, (*RUN, "--resume")]),
    "compared/sgd-0/record.json": (mutate_json, [COMPARE]),
    "compared/sfao-0/config.yaml": (mutate_yaml, [COMPARE, (*COMPARE, "--resume")]),
    "grid/trial-0-0/record.json": (mutate_json, [GRID]),
    "tuned/journal.log": (mutate_json_lines, [TUNE]),
    "tuned/trial-0-0/record.json": (mutate_json, [TUNE]),
    "reproduced/paper/x/record.json": (mutate_json, [REPRODUCE]),
    "own.yaml": (mutate_yaml, [(*RUN, "--config", "own.yaml"), (*GRID, "--config", "own.yaml")]),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Iterator[Path]:
    """A folder with one of each that commands leave, made by them."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch, runs_in_this_process():
        patch.chdir(folder)
        for command in (RUN, COMPARE, GRID, TUNE):
            ended = call(*command)
            assert ended.code == 0, ended.error
        shutil.copytree("run", "reproduced/paper/x")
        shutil.copy("run/config.yaml", "own.yaml")
        yield folder


def damage(finished: Path, at: Path, file: str, mutate: Mutate, random: Random) -> None:
    """Leave a copy of the folder at `at`, with one file damaged."""
    top = file.partition("/")[0]
    place = at / top
    if (finished / top).is_dir():
        shutil.copytree(finished / top, place)
    (at / file).write_bytes(mutate(random, (finished / file).read_bytes()))


def attack_file(tried: Attack, finished: Path, file: str, trials: Sequence[int]) -> None:
    mutate, commands = READERS[file]
    for number in trials:
        random = Random(f"{file} {number}")

        def trial(number: int = number, random: Random = random) -> None:
            damage(finished, Path(), file, mutate, random)
            call(*random.choice(commands)).check()

        tried.try_it(f"{file} {number}", trial)
        top = Path(file.partition("/")[0])
        shutil.rmtree(top) if top.is_dir() else top.unlink()


@in_parts
@pytest.mark.parametrize("file", READERS)
def test_damaged_files_are_told_or_harmless(file, part, finished, attack, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tried = attack(TARGET, f"{Path(file).name} with damaged bytes, values and structure")
    with runs_in_this_process():
        attack_file(tried, finished, file, list_part(range(in_soak(25, 9100)), part))


@pytest.mark.parametrize(
    ("file", "mutate", "trials"),
    [("record.json", mutate_json, (4, 1000)), ("steps.jsonl", mutate_json_lines, (1, 500))],
)
def test_a_report_of_damaged_runs_is_told_or_harmless(file, mutate, trials, finished, attack, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tried = attack("reports", f"{file} with damaged bytes, values and structure")
    for number in range(in_soak(*trials)):

        def trial(number: int = number) -> None:
            damage(finished, Path(), f"run/{file}", mutate, Random(f"{file} {number}"))
            call("report", "run").check()

        tried.try_it(f"{file} {number}", trial)
        shutil.rmtree("run")


def test_damaged_telemetry_is_read_up_to_the_damage(finished, attack, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tried = attack("reports", "steps.jsonl read with damaged bytes, values and structure")
    for number in range(in_soak(60, 20_000)):

        def trial(number: int = number) -> None:
            damage(finished, Path(), "run/steps.jsonl", mutate_json_lines, Random(number))
            (loaded,) = load_runs([Path("run")])
            whole = len((finished / "run/steps.jsonl").read_bytes().splitlines())
            assert loaded.notice or len(loaded.steps) in (whole, 2 * whole, *range(whole)), len(loaded.steps)

        tried.try_it(str(number), trial)
        shutil.rmtree("run")


NAMED = {
    "memory_bytes": 10**400,
    "error": "\ud800",
    "finished": "0001-01-01T00:00:00+14:00",
    "warnings": [[["deep"]] * 2],
    "config": {"model": {"name": []}, "benchmark": []},
    "seconds": float("inf"),
}


@pytest.mark.parametrize("name", NAMED)
def test_records_that_were_reported_are_damaged(name, finished, attack, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tried = attack("reports", "records that once had a traceback")
    shutil.copytree(finished / "run", "run")
    record = json.loads(Path("run/record.json").read_bytes())
    Path("run/record.json").write_text(json.dumps({**record, name: NAMED[name]}))

    def trial() -> None:
        for command in (RUN, ("report", "run")) if name != "config" else (RUN,):
            ended = call(*command)
            ended.check()
            assert ended.code == 2 or name == "config", (ended.code, ended.error)

    tried.try_it(name, trial)
