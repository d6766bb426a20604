"""Runs that are killed anywhere, as by `kill -9`, end bit for bit as runs that nobody disturbed."""

import os
import random
import time
from functools import partial

import pytest
import torch

from sfao.lab.run.checkpoint import LATEST, load_checkpoint, remove_checkpoints, save_checkpoint
from sfao.lab.run.record import load_record
from tests.faults.small_runs import VARIANTS, check_same, do_run, in_child, make_config, save_after_every_step
from tests.faults.system_calls import hook_calls
from tests.faults.tally import in_soak

KILLED = 9


def die_at(last):
    def hook(number, name):
        if number == last:
            os._exit(KILLED)

    return hook


def count_calls(work):
    with hook_calls(lambda number, name: None) as made:
        work()
    return list(made)


def test_between_any_two_system_calls_of_saving_one_of_two_states_is_there(tmp_path, attack):
    """Also in the middle of the packed state, which torch writes in pieces."""
    tried = attack("checkpoint", "killed before each system call of saving it")

    def save(folder, number):
        save_checkpoint(folder, {"number": number, "weights": torch.full((50,), float(number))}, {"seed": 0}, {})

    for number in (1, 2):
        save(tmp_path, number)
    for last in range(1, len(count_calls(lambda: save(tmp_path, 3))) + 1):
        for number in (1, 2):
            save(tmp_path, number)

        def trial(last=last):
            assert in_child(lambda: _killed_while(lambda: save(tmp_path, 3), last)) == KILLED
            loaded = load_checkpoint(tmp_path)
            assert loaded.state["number"] in (2, 3)
            assert (loaded.state["weights"] == loaded.state["number"]).all()
            assert "damaged" not in loaded.notice

        tried.try_it(f"call {last}", trial)


def _killed_while(work, last):
    with hook_calls(die_at(last)):
        work()


def test_between_any_two_system_calls_of_ending_the_run_is_finished_or_goes_on(tmp_path, attack, monkeypatch):
    save_after_every_step(monkeypatch)
    tried = attack("record.json", "killed before each system call of writing it and removing checkpoints")
    folder, config = tmp_path / "run", make_config()
    record = do_run(config, folder)

    def end():
        record.save(folder)
        remove_checkpoints(folder)

    for last in range(1, len(count_calls(end)) + 1):
        (folder / "record.json").unlink(missing_ok=True)
        save_checkpoint(folder, {}, config.model_dump(), record.data)

        def trial(last=last):
            assert in_child(lambda: _killed_while(end, last)) == KILLED
            if (folder / "record.json").exists():
                assert do_run(config, folder) == record
                assert not (folder / LATEST).exists(), "the checkpoint of a finished run is still there"
            else:
                assert load_checkpoint(folder).label.data == record.data

        tried.try_it(f"call {last}", trial)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_run_killed_at_a_random_system_call_ends_the_same(tmp_path, attack, monkeypatch, name):
    save_after_every_step(monkeypatch)
    tried = attack(f"run of {name}", "killed before a random system call, then resumed")
    chance = random.Random(name)
    for number in range(in_soak(1, 9)):
        folder, config = tmp_path / str(number), make_config(name)
        deaths = [chance.randint(8, 90) for _ in range(in_soak(1, 2))]

        def trial(folder=folder, config=config, deaths=deaths):
            for last in deaths:
                assert in_child(partial(_killed_while, partial(do_run, config, folder), last)) in (KILLED, 0)
            check_same(do_run(config, folder), folder, name)

        tried.try_it(f"killed at {deaths}", trial)


@pytest.mark.soak
def test_a_run_killed_at_any_time_ends_the_same(tmp_path, attack, monkeypatch):
    """By a signal from outside, so that also what no system call marks is hit."""
    save_after_every_step(monkeypatch)
    tried = attack("run", "kill -9 at a random moment, then resumed")
    chance = random.Random(0)
    check_same(do_run(make_config("sfao"), tmp_path / "whole"), tmp_path / "whole", "sfao")
    began = time.monotonic()
    do_run(make_config("sfao"), tmp_path / "timed")
    took = time.monotonic() - began
    for number in range(50):
        folder, wait = tmp_path / str(number), chance.uniform(0, took)

        def trial(folder=folder, wait=wait):
            child = os.fork()
            if child == 0:
                try:
                    do_run(make_config("sfao"), folder)
                finally:
                    os._exit(0)
            time.sleep(wait)
            os.kill(child, KILLED)
            os.waitpid(child, 0)
            check_same(do_run(make_config("sfao"), folder), folder, "sfao")
            assert load_record(folder).status == "done"

        tried.try_it(f"after {wait:.3f} s", trial)
