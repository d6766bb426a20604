"""Folders of runs that are shared, removed, replaced, linked or closed to us."""

import errno
import os
import shutil
import time
from pathlib import Path

import pytest
import torch

from sfao.lab.run.checkpoint import LATEST, PREVIOUS
from sfao.lab.run.errors import FolderError, Interrupted
from sfao.lab.run.files import LOCK
from sfao.lab.run.folder import FILES, check_folder
from sfao.lab.run.record import load_record
from tests.faults.small_runs import check_same, do_run, make_config, save_after_every_step
from tests.faults.tally import in_soak

#: Seconds that a process may take to get so far; only a hang takes longer.
PATIENCE = 300


@pytest.fixture(autouse=True)
def _often_saved(monkeypatch):
    save_after_every_step(monkeypatch)


def read_all(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def wait_until(condition):
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < PATIENCE, "it never came to this"
        time.sleep(0.01)


# -- Many processes ------------------------------------------------------------------------------------------


def test_of_eight_processes_one_runs_and_the_others_are_refused(tmp_path, attack):
    tried = attack("run folder", "eight processes begin the same run at once")
    for number in range(in_soak(1, 20)):
        place = tmp_path / str(number)
        place.mkdir()

        def trial(place=place):
            children = [_fork_contender(place, name) for name in range(8)]
            for child in children:
                os.waitpid(child, 0)
            ended = sorted(path.read_text() for path in place.glob("ended-*"))
            assert ended == ["ran"] + ["refused"] * 7, ended
            check_same(load_record(place / "run"), place / "run")

        tried.try_it(f"time {number}", trial)


def _fork_contender(place: Path, name: int) -> int:
    """Fork a process that runs, and stays in its run until the seven others have been refused."""
    child = os.fork()
    if child:
        return child

    def wait_for_others():
        wait_until(lambda: len(list(place.glob("ended-*"))) == 7)
        return False

    try:
        do_run(make_config(), place / "run", stopping=wait_for_others)
        said = "ran"
    except FolderError as error:
        said = "refused" if "another process is running" in str(error) else str(error)
    except BaseException as error:
        said = repr(error)
    (place / f"ended-{name}").write_text(said)
    os._exit(0)


# -- Removed and replaced ------------------------------------------------------------------------------------


def remove(folder):
    shutil.rmtree(folder)


def empty(folder):
    for path in folder.iterdir():
        path.unlink()


def move(folder):
    folder.rename(folder.with_name(f"moved-{folder.name}"))


@pytest.mark.parametrize("how", [remove, empty, move])
def test_a_run_whose_folder_is_gone_ends_with_an_error_that_names_it(tmp_path, attack, how):
    tried = attack("run folder", "removed, emptied or moved under a live run")
    folder, steps = tmp_path / "run", iter(range(1, 100))

    def act():
        if next(steps) == 3:
            how(folder)
        return False

    def trial():
        with pytest.raises(OSError, match="No such file") as caught:
            do_run(make_config(), folder, stopping=act)
        assert str(folder) in str(caught.value)
        assert not (folder / "record.json").exists()

    tried.try_it(how.__name__, trial)


# -- Links ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*FILES, LOCK])
@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path, attack, name, dangling):
    tried = attack("run folder", "a link to a file elsewhere in the place of each file")
    folder, steps, precious = tmp_path / "run", iter(range(1, 100)), tmp_path / "precious"
    with pytest.raises(Interrupted):
        do_run(make_config(), folder, stopping=lambda: next(steps) == 4)
    if not dangling:
        precious.write_bytes((folder / name).read_bytes() if (folder / name).exists() else b"precious")
    before = None if dangling else precious.read_bytes()
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(precious)

    def trial():
        with pytest.raises(FolderError, match=f"{name} must be a file of its own, got a link"):
            do_run(make_config(), folder)
        assert (precious.read_bytes() if precious.exists() else None) == before

    tried.try_it(f"{name}, {'dangling' if dangling else 'to a file'}", trial)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in folders here")
def test_a_pipe_or_a_folder_in_the_place_of_a_file_is_refused_and_not_waited_for(tmp_path, attack):
    tried = attack("run folder", "a pipe and a folder in the place of each file")
    for name in FILES:
        for got, make in {"a pipe or device": os.mkfifo, "a folder": os.mkdir}.items():
            folder = tmp_path / f"{got[2:8]}-{name}"
            folder.mkdir()
            make(folder / name)

            def trial(folder=folder, name=name, got=got):
                with pytest.raises(FolderError, match=f"{name} must be a file of its own, got {got}"):
                    check_folder(folder, make_config(), resume=True)

            tried.try_it(f"{name}, {got}", trial)


def test_a_link_that_comes_after_the_checks_is_not_followed_either(tmp_path, attack):
    tried = attack("run folder", "a link put in the place of each file under a live run")
    for name in ("steps.jsonl", LATEST, PREVIOUS, "record.json"):
        folder, steps, precious = tmp_path / name, iter(range(1, 100)), tmp_path / f"precious-{name}"
        precious.write_bytes(b"precious")

        def act(folder=folder, steps=steps, precious=precious, name=name):
            if next(steps) == 3:
                (folder / name).unlink(missing_ok=True)
                (folder / name).symlink_to(precious)
            return False

        def trial(folder=folder, act=act, precious=precious):
            try:
                do_run(make_config(), folder, stopping=act)
            except OSError as error:
                check_link_named(error)
            assert precious.read_bytes() == b"precious"

        tried.try_it(name, trial)


def check_link_named(error):
    assert (error.errno, error.strerror) == (errno.ELOOP, "must be a file of its own, not a link")


# -- Closed to us --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [LATEST, "config.yaml", "steps.jsonl", "record.json"])
@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ENOMEM])
def test_a_file_that_cannot_be_read_now_is_no_damage(tmp_path, attack, monkeypatch, name, code):
    tried = attack("run folder", "a file that cannot be read for now: EACCES, EIO, ENOMEM")
    folder, steps = tmp_path / "run", iter(range(1, 100))
    if name == "record.json":
        do_run(make_config(), folder)
    else:
        with pytest.raises(Interrupted):
            do_run(make_config(), folder, stopping=lambda: next(steps) == 4)
    before, true = read_all(folder), (os.open, Path.read_text)

    def refuse(path, true_call, *arguments, **named):
        if Path(path).name == name:
            raise OSError(code, os.strerror(code), str(path))
        return true_call(path, *arguments, **named)

    def trial():
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", lambda path, *rest, **named: refuse(path, true[0], *rest, **named))
            patch.setattr(Path, "read_text", lambda path, *rest, **named: refuse(path, true[1], *rest, **named))
            with pytest.raises((OSError, ValueError), match=os.strerror(code)):
                do_run(make_config(), folder)
        assert read_all(folder) == before
        check_same(do_run(make_config(), folder), folder)

    tried.try_it(f"{name}, {errno.errorcode[code]}", trial)


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")]
)
def test_too_little_memory_for_a_checkpoint_is_no_damage(tmp_path, attack, monkeypatch, error):
    tried = attack("checkpoint", "too little memory to load it")
    folder, steps = tmp_path / "run", iter(range(1, 100))
    with pytest.raises(Interrupted):
        do_run(make_config(), folder, stopping=lambda: next(steps) == 4)
    before = read_all(folder)

    def fail(*arguments, **named):
        raise error

    def trial():
        with monkeypatch.context() as patch:
            patch.setattr(torch, "load", fail)
            with pytest.raises(type(error)):
                do_run(make_config(), folder)
        assert read_all(folder) == before
        check_same(do_run(make_config(), folder), folder)

    tried.try_it(repr(error), trial)
