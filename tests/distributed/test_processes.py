"""The ranks that tests share: they are the same from call to call, until one of them fails or dies."""

import os
import warnings

import pytest
import torch

from tests.distributed.processes import run_ranks


def tell_process(rank, size):
    warnings.simplefilter("ignore")
    torch.set_default_dtype(torch.float64)
    return os.getpid(), float(torch.rand(()))


def fail(rank, size, how):
    if rank == 1:
        if how == "dies":
            os._exit(3)
        raise ValueError("on purpose")


def tell_filters(rank, size):
    return warnings.filters[0][0] == "ignore" and warnings.filters[0][2] is Warning, torch.get_default_dtype()


def test_ranks_serve_many_calls_and_each_finds_them_as_new():
    first, again = run_ranks(2, tell_process), run_ranks(2, tell_process)
    assert first == again
    assert len({pid for pid, _ in first}) == 2
    assert run_ranks(2, tell_filters) == [(False, torch.float32)] * 2


@pytest.mark.parametrize(("how", "message"), [("raises", "ValueError: on purpose"), ("dies", "rank 1 died")])
def test_ranks_of_which_one_failed_are_replaced(how, message):
    before = run_ranks(2, tell_process)
    with pytest.raises(RuntimeError, match=message):
        run_ranks(2, fail, how)
    after = run_ranks(2, tell_process)
    assert {pid for pid, _ in before}.isdisjoint(pid for pid, _ in after)
