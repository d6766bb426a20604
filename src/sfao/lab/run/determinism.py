"""The same bits again: kernels that give the same result at every call, or a line that names the one that cannot."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sfao.lab.run.errors import NotDeterministic

#: What cuBLAS reads when it is first used: with one of these values its products are the same at every call.
CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
CUBLAS_CHOICES = (":4096:8", ":16:8")


def prepare_cublas() -> None:
    """Set what cuBLAS reads when it is first used in this process, or raise a ValueError if that has happened."""
    found = os.environ.get(CUBLAS)
    choices = " or ".join(CUBLAS_CHOICES)
    if found is None and torch.cuda.is_initialized():
        raise ValueError(
            f"`deterministic` must be asked for before CUDA is first used in a process; "
            f"set {CUBLAS} to {choices} where Python is started"
        )
    if found is not None and found not in CUBLAS_CHOICES:
        raise ValueError(f"`deterministic` needs {CUBLAS} to be {choices}, or unset, got {found!r}")
    os.environ[CUBLAS] = found or CUBLAS_CHOICES[0]


@contextmanager
def deterministic_kernels(wanted: bool) -> Iterator[None]:
    """Let torch use deterministic kernels alone, if that is wanted; raise NotDeterministic where there is none."""
    if not wanted:
        yield
        return
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cudnn.deterministic,
        torch.backends.cudnn.benchmark,
    )
    _set(True, False, True, False)
    try:
        yield
    except RuntimeError as error:
        operation = re.match(r"(\S+) does not have a deterministic implementation", str(error))
        if operation is None:
            raise
        raise NotDeterministic(
            f"`deterministic` needs operations that have a deterministic form, and {operation[1]} has none here"
        ) from error
    finally:
        _set(*before)


def _set(algorithms: bool, warn_only: bool, cudnn: bool, benchmark: bool) -> None:
    torch.use_deterministic_algorithms(algorithms, warn_only=warn_only)
    torch.backends.cudnn.deterministic = cudnn
    torch.backends.cudnn.benchmark = benchmark
