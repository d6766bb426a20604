"""Runs that ask for the same bits: what they set, what they refuse, and that they leave torch as it was."""

import os
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from sfao.lab.cli.run import run
from sfao.lab.models import MODELS
from sfao.lab.run.config import configure
from sfao.lab.run.errors import Interrupted, NotDeterministic
from sfao.lab.run.loop import execute
from sfao.lab.run.record import load_record
from sfao.lab.run.setup import CUBLAS, deterministic_kernels, prepare_cublas

SHORT = {"tasks": 2, "epochs": 1, "fraction": 0.05, "model.hidden": 8}


class _Puts(nn.Module):
    """A layer with an operation that torch has no deterministic form of, on any device."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.zeros(4).put_(torch.tensor([1]), torch.tensor([1.0]), accumulate=False)[1]


def _make_putting(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, outputs), _Puts())


def _flags() -> tuple[bool, bool, bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cudnn.deterministic,
        torch.backends.cudnn.benchmark,
    )


def test_a_deterministic_run_says_so_in_its_record_and_leaves_torch_as_it_was(tmp_path: Path) -> None:
    before, seen = _flags(), []
    config = configure("split-mnist-5k", "sfao", settings={**SHORT, "deterministic": True})
    record = execute(config, tmp_path / "run", stopping=lambda: bool(seen.append(_flags())))
    assert record.config["deterministic"] is True
    assert set(seen) == {(True, False, True, False)}
    assert _flags() == before
    plain = execute(configure("split-mnist-5k", "sfao", settings=SHORT), tmp_path / "plain")
    assert plain.weights_sha256 == record.weights_sha256  # of the CPU's kernels, these models use deterministic ones
    assert plain.config["deterministic"] is False


def test_an_operation_without_a_deterministic_form_is_named(tmp_path: Path) -> None:
    before = _flags()
    with MODELS.override({"putting": _make_putting}):
        settings = {"tasks": 2, "epochs": 1, "fraction": 0.05, "model.name": "putting"}
        assert execute(configure("split-mnist-5k", "sgd", settings=settings), tmp_path / "plain").status == "done"
        with pytest.raises(
            NotDeterministic, match="needs operations that have a deterministic form, and put_ has none here"
        ):
            execute(
                configure("split-mnist-5k", "sgd", settings={**settings, "deterministic": True}), tmp_path / "strict"
            )
    assert _flags() == before


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(RuntimeError, match="shapes"), deterministic_kernels(True):
        raise RuntimeError("shapes")


def test_cublas_is_told_before_cuda_is_first_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CUBLAS, ":16:8")
    prepare_cublas()
    assert os.environ[CUBLAS] == ":16:8"
    monkeypatch.setenv(CUBLAS, ":0:0")
    with pytest.raises(ValueError, match=r"`deterministic` needs CUBLAS_WORKSPACE_CONFIG to be .*, got ':0:0'"):
        prepare_cublas()
    monkeypatch.delenv(CUBLAS)
    with monkeypatch.context() as used:
        used.setattr(torch.cuda, "is_initialized", lambda: True)
        with pytest.raises(ValueError, match="`deterministic` must be asked for before CUDA is first used"):
            prepare_cublas()
    if not torch.cuda.is_initialized():
        prepare_cublas()
        assert os.environ[CUBLAS] == ":4096:8"


def test_the_option_is_the_setting_and_takes_one_thread(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    settings = [f"{name}={value}" for name, value in SHORT.items()]
    try:
        torch.set_num_threads(before + 1)
        run("split-mnist-5k", method="sgd", out=tmp_path / "run", settings=settings, deterministic=True, quiet=True)
    finally:
        torch.set_num_threads(before)
    record = load_record(tmp_path / "run")
    assert record.config["deterministic"] is True
    assert record.versions["threads"] == "1"


def test_a_run_that_resumes_with_other_threads_has_a_warning(tmp_path: Path) -> None:
    before, steps = torch.get_num_threads(), iter(range(100))
    config = configure("split-mnist-5k", "sgd", settings=SHORT)
    with pytest.raises(Interrupted):
        execute(config, tmp_path, stopping=lambda: next(steps) == 3)
    try:
        torch.set_num_threads(before + 1)
        record = execute(config, tmp_path, resume=True)
    finally:
        torch.set_num_threads(before)
    assert record.warnings == [f"resumed on {before + 1} CPU threads after {before}: the last bits may differ"]
