"""What a run needs before its first step: a device, deterministic kernels, seeded generators, a model that fits."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from sfao.lab.models import MODELS, build_model
from sfao.lab.run.config import ModelConfig
from sfao.lab.run.errors import NotDeterministic
from sfao.lab.streams.seeding import make_generator
from sfao.lab.streams.stream import Stream

#: What cuBLAS reads when it is first used: with one of these values its products are the same at every call.
CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
CUBLAS_CHOICES = (":4096:8", ":16:8")


def usable_device(name: str, deterministic: bool = False) -> torch.device:
    """Return the device, or raise a ValueError if this machine does not have it, or not for deterministic runs."""
    if deterministic and name.startswith("cuda"):
        prepare_cublas()
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # fails on `meta`
    except (AssertionError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(f"`device` must be one that this machine has, got {name!r}: {reason}") from error
    return device


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
    """Let torch use deterministic kernels only, if wanted; raise NotDeterministic for an operation without one."""
    if not wanted:
        yield
        return
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cudnn.deterministic,
        torch.backends.cudnn.benchmark,
    )
    _set_kernels(True, False, True, False)
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
        _set_kernels(*before)


def _set_kernels(algorithms: bool, warn_only: bool, cudnn: bool, benchmark: bool) -> None:
    torch.use_deterministic_algorithms(algorithms, warn_only=warn_only)
    torch.backends.cudnn.deterministic = cudnn
    torch.backends.cudnn.benchmark = benchmark


@contextmanager
def seed_generators(seed: int, device: torch.device) -> Iterator[list[torch.Generator]]:
    """Seed torch's default generators, which dropout draws from, and restore their states afterwards."""
    generators = [torch.default_generator]
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        generators.append(torch.cuda.default_generators[index])
    before = [generator.get_state() for generator in generators]
    for generator in generators:
        generator.manual_seed(make_generator(seed, "layers").initial_seed())
    try:
        yield generators
    finally:
        for generator, state in zip(generators, before, strict=True):
            generator.set_state(state)


def place_model(model: nn.Module, device: torch.device, *, is_own: bool) -> nn.Module:
    """Return the model on the device; on a GPU our own have their channels last, which its kernels want.

    A user's model may count on the other order: `x.view(len(x), -1)` after a convolution does.
    """
    if is_own and device.type == "cuda":
        return model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]
    return model.to(device)


def make_model(config: ModelConfig, stream: Stream, seed: int, device: torch.device) -> nn.Module:
    """Return the model with the weights of the seed; raise a ValueError if it cannot read the stream's inputs."""
    model = build_model(config.name, stream.input_shape, stream.outputs, seed, **config.sizes)
    inputs, _ = next(stream.tasks[0].test.batches(1))
    check_outputs(model, inputs, stream.outputs, config.name)
    return place_model(model, device, is_own=config.name in MODELS)


def check_outputs(model: nn.Module, inputs: Tensor, outputs: int, name: str) -> None:
    """Check that the model returns a row of so many outputs, or more, for one example; nothing of it changes."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError(f"`model` {name!r} must have parameters to train, got none")
    modes = {module: module.training for module in model.modules()}
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            made = model.eval()(inputs)
    except Exception as error:  # a model of one's own may fail in any way
        said = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
        raise ValueError(f"`model` {name!r} must take inputs of shape {tuple(inputs.shape)}, got {said}") from error
    finally:
        for module, mode in modes.items():
            module.training = mode
    if not isinstance(made, Tensor) or made.dim() != 2 or len(made) != len(inputs):
        got = f"shape {tuple(made.shape)}" if isinstance(made, Tensor) else type(made).__name__
        raise ValueError(f"`model` {name!r} must return one row of outputs for each example, got {got}")
    if made.shape[1] < outputs:
        raise ValueError(f"`model` {name!r} must have {outputs} outputs for the labels, got {made.shape[1]}")
