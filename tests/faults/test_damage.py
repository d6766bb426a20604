"""One damaged bit in any file that is read again: it is refused, or the numbers are what they were."""

import random
import shutil

import pytest
from typer.testing import CliRunner

from sfao.lab.cli.app import app
from sfao.lab.report.runs import load_runs
from sfao.lab.run.checkpoint import LATEST, PREVIOUS, load_checkpoint, read_label
from sfao.lab.run.config import configure
from sfao.lab.run.errors import ConfigError, FolderError, Interrupted, ReportError
from sfao.lab.run.record import load_record
from tests.faults.small_runs import TINY, check_same, do_run, make_config, save_after_every_step
from tests.faults.tally import in_soak


def flip(path, chance):
    """Flip a bit of a file, and return which."""
    data = bytearray(path.read_bytes())
    place, bit = chance.randrange(len(data)), chance.randrange(8)
    data[place] ^= 1 << bit
    path.write_bytes(data)
    return f"{path.name}, bit {bit} of byte {place}"


def check_named(error, path):
    assert str(error).startswith(f"{path} must be")
    assert "it is damaged" in str(error)
    assert "put a copy in its place" in str(error)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A finished run, and one that was stopped after four of its six steps: to be copied."""
    folder, steps = tmp_path_factory.mktemp("made"), iter(range(1, 10))
    with pytest.MonkeyPatch.context() as patch:
        save_after_every_step(patch)
        do_run(make_config("sfao"), folder / "finished")
        with pytest.raises(Interrupted):
            do_run(make_config("sfao"), folder / "begun", stopping=lambda: next(steps) == 4)
    return folder


@pytest.fixture
def finished(made, tmp_path, monkeypatch):
    save_after_every_step(monkeypatch)
    return shutil.copytree(made / "finished", tmp_path / "sfao-0")


@pytest.fixture
def begun(made, tmp_path, monkeypatch):
    save_after_every_step(monkeypatch)
    return shutil.copytree(made / "begun", tmp_path / "begun")


@pytest.mark.parametrize("name", ["record.json", "steps.jsonl", "config.yaml"])
def test_a_bit_of_a_finished_run(finished, attack, name):
    tried = attack(name, "a flipped bit in a finished run, read by reports and by the next command")
    (known,) = load_runs([finished])
    whole, chance = (finished / name).read_bytes(), random.Random(name)
    for _ in range(in_soak(150, 10_000)):
        label = flip(finished / name, chance)

        def trial():
            try:
                (found,) = load_runs([finished])
            except ReportError as error:
                check_named(error, finished / "record.json")
            else:
                assert vars(found.record) == vars(known.record)
                assert found.steps == known.steps or (found.steps == [] and "damaged" in found.notice)

        tried.try_it(label, trial)
        (finished / name).write_bytes(whole)


@pytest.mark.parametrize("name", [LATEST, PREVIOUS])
def test_a_bit_of_a_checkpoint(begun, attack, name):
    tried = attack(name, "a flipped bit: known by the seal, and the other one is taken")
    whole, chance = (begun / name).read_bytes(), random.Random(name)
    steps = {PREVIOUS: 4, LATEST: 3}[name]  # of the checkpoint that is left
    label_before = read_label(begun)
    for _ in range(in_soak(60, 5_000)):
        label = flip(begun / name, chance)

        def trial():
            loaded = load_checkpoint(begun)
            assert loaded.state["position"]["steps"] == steps
            assert ("damaged" in loaded.notice) == (name == LATEST)
            assert read_label(begun)[1:] == label_before[1:]

        tried.try_it(label, trial)
        (begun / name).write_bytes(whole)


@pytest.mark.parametrize("name", [LATEST, PREVIOUS, "config.yaml", "steps.jsonl"])
def test_a_run_resumed_after_a_flipped_bit(begun, attack, tmp_path, name):
    tried = attack(name, "a flipped bit in an unfinished run, which is then resumed")
    chance = random.Random(name)
    for number in range(in_soak(3, 250)):
        folder = tmp_path / "copies" / str(number)
        shutil.copytree(begun, folder)
        label = flip(folder / name, chance)

        def trial(folder=folder):
            try:
                record = do_run(make_config("sfao"), folder)
            except (FolderError, ConfigError):
                return
            if name != "steps.jsonl":
                check_same(record, folder, "sfao")
            else:
                assert any("steps.jsonl was damaged" in warning for warning in record.warnings)
                assert load_runs([folder])[0].notice == ""

        tried.try_it(label, trial)


def test_a_digit_of_a_record_is_refused_by_every_command(finished, attack):
    """Each change is one that the rules of values alone would let pass."""
    tried = attack("record.json", "one digit changed, read by run, compare and report")
    whole = (finished / "record.json").read_text()
    known = load_record(finished)
    settings = [f"--set={name}={value}" for name, value in TINY.items()]
    commands = {
        "run": ["run", "split-mnist-5k", "--method", "sfao", *settings, "--resume", "--out", finished],
        "compare": ["compare", "split-mnist-5k", "--methods=sfao", "--seeds=0,", *settings, "--out", finished.parent],
        "report": ["report", finished.parent, "--out", finished.parent / "report"],
    }
    for field in ("memory_bytes", "steps", "parameters"):
        value = getattr(known, field)
        (finished / "record.json").write_text(whole.replace(f'"{field}": {value}', f'"{field}": {value + 1}'))
        for command, arguments in commands.items():

            def trial(arguments=arguments):
                done = CliRunner().invoke(app, [*map(str, arguments)])
                assert done.exit_code == 2, done.output
                assert "record.json must be the record of a run, but it is damaged" in done.stderr
                assert "put a copy in its place, or remove it to do the run again" in done.stderr

            tried.try_it(f"{field}, {command}", trial)
    (finished / "record.json").write_text(whole)


@pytest.mark.parametrize("setting", [{"seed": 1}, {"lr": 0.06}, {"method": "ewc"}, {"epochs": 2}])
def test_files_of_another_run_are_refused(begun, finished, attack, setting):
    """A checkpoint or record that was copied here: of the same model, so that it would load."""
    tried = attack("checkpoint and record", "of a run with another seed, lr, method or length")
    method, seed = setting.get("method", "sfao"), setting.get("seed", 0)
    others = {name: value for name, value in setting.items() if name not in ("method", "seed")}
    folder = finished.parent / "other"
    other = configure("split-mnist-5k", method, seed=seed, settings={**TINY, **others})
    steps = iter(range(100))
    with pytest.raises(Interrupted):
        do_run(other, folder, stopping=lambda: next(steps) == 2)
    for taken, source in ((LATEST, begun), ("record.json", finished)):
        shutil.copy(source / taken, folder / taken)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}

        def trial(taken=taken, before=before):
            with pytest.raises(FolderError, match=f"{taken} must be of the run in its folder, but it is of another"):
                do_run(other, folder)
            assert {path.name: path.read_bytes() for path in folder.iterdir()} == before

        tried.try_it(f"{taken}, {setting}", trial)
