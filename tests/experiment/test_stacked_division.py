"""Which jobs can share a stack, by their settings."""

import pytest

from sfao.experiment.errors import ConfigError
from sfao.experiment.plan import plan
from sfao.experiment.stacked.divide import LARGEST, check_any_stack, divide


def make_jobs(out, methods=("sgd",), seeds=3, **settings):
    return plan("split-mnist-5k", methods, range(seeds), out, settings=settings)


def test_runs_of_other_shapes_are_in_other_stacks(tmp_path):
    jobs = make_jobs(tmp_path / "a", seeds=2) + make_jobs(tmp_path / "b", seeds=2, **{"model.hidden": 5})
    jobs += make_jobs(tmp_path / "c", seeds=1, epochs=2)
    found = divide(jobs)
    assert found.stacks == [jobs[:2], jobs[2:4]]
    assert found.others == {"no other run here can share a stack with it": jobs[4:]}


def test_more_runs_than_a_stack_takes_are_divided_evenly(tmp_path):
    stacks = divide(make_jobs(tmp_path, seeds=LARGEST + 3)).stacks
    assert sorted(map(len, stacks)) == [(LARGEST + 3) // 2, (LARGEST + 4) // 2]


def test_no_two_runs_that_can_share_a_stack_are_an_error_of_one_line(tmp_path):
    for jobs, said in (
        (make_jobs(tmp_path, ["agem"]), "agem-0: agem has no stacked form"),
        (make_jobs(tmp_path, ["sgd"], 1), "sgd-0: no other run here can share a stack with it"),
        (
            make_jobs(tmp_path, ["sfao"], **{"options.memory": "both"}),
            "only memory='subspace' can be stacked, got 'both'",
        ),
    ):
        with pytest.raises(ConfigError, match="`--stack` needs runs that can share a stack, got none: ") as error:
            check_any_stack(jobs)
        assert said in str(error.value)
        assert "\n" not in str(error.value)
