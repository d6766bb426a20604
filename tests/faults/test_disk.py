"""A disk that fails at any system call: the reason is said, nothing good is lost, and the run goes on afterwards."""

import errno
import os
import re
from itertools import product

import pytest

from tests.faults.small_runs import check_same, do_run, make_config, save_after_every_step
from tests.faults.system_calls import hook_calls
from tests.faults.tally import in_parts, in_soak, list_part

CODES = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EDQUOT)


def fail_at(failing, code):
    def hook(number, name):
        if number == failing:
            raise OSError(code, os.strerror(code))

    return hook


@in_parts
def test_an_error_at_any_system_call_is_told_and_the_run_goes_on_afterwards(part, tmp_path, attack, monkeypatch):
    save_after_every_step(monkeypatch)
    tried = attack("run", "ENOSPC, EIO, EACCES and EDQUOT at each system call, then resumed")
    do_run(make_config(), tmp_path / "first")  # the first run of a process makes the folder of the cache too
    with hook_calls(lambda number, name: None) as made:
        do_run(make_config(), tmp_path / "counted")
    # The lock makes its folder, the second call, which is there already: pathlib then ignores errors.
    places = [(number, code) for number, code in product(range(1, len(made) + 1), CODES) if number != 2]
    for failing, code in list_part(places[:: in_soak(len(places) // 8, 1)], part):
        folder = tmp_path / f"{failing}-{code}"

        def trial(folder=folder, failing=failing, code=code):
            with (
                pytest.raises(OSError, match=re.escape(os.strerror(code))) as caught,
                hook_calls(fail_at(failing, code)),
            ):
                do_run(make_config(), folder)
            assert caught.value.errno == code
            check_same(do_run(make_config(), folder), folder)

        tried.try_it(f"{errno.errorcode[code]} at call {failing}, {made[failing - 1]}", trial)
