"""Arguments of `bench` and `estimate`, parsed and checked; a ConfigError names argument, rule and value."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch

from sfao.checks import check_choice
from sfao.cost.cases import DECISIONS, SUBJECTS, Subject
from sfao.cost.training import AUTOCAST, COMPILED, Setting
from sfao.experiment.device import usable_device
from sfao.experiment.errors import ConfigError, reraise_as
from sfao.experiment.make_model import check_outputs
from sfao.gating.budget import parse_bytes
from sfao.gating.options import CHOICES, OPTIONS_OF
from sfao.models import MODELS

Value = TypeVar("Value")

ALL = "all"
KNOWN = {
    "memory": tuple(OPTIONS_OF),
    "decisions": DECISIONS,
    "storage": CHOICES["storage"],
    "memory-dtype": CHOICES["memory_dtype"],
    "autocast": tuple(AUTOCAST),
    "compile": COMPILED,
    "model": tuple(SUBJECTS),
}


def parse_choices(name: str, text: str) -> tuple[str, ...]:
    """Parse `dense,factored` into names that are known."""
    return _parse_list(name, text, lambda part: parse_choice(name, part))


def parse_choice(name: str, value: str) -> str:
    with reraise_as(ConfigError):
        check_choice(name, value, KNOWN[name])
    return value


def check_one_memory(options: Mapping[str, object]) -> None:
    """Refuse options of both memories at once: one is estimated at a time."""
    named = [name for names in OPTIONS_OF.values() for name in next(([n] for n in names if n in options), [])]
    if len(named) > 1 and "memory" not in options:
        raise ConfigError(f"`{named[0]}` and `{named[1]}` are options of different memories; give one of the two")


def check_measured(memory: str, options: Mapping[str, object], measured: Sequence[str]) -> None:
    """Refuse options, those that are not None, of a memory that is not measured."""
    for name, value in options.items():
        if value is not None and memory not in measured:
            raise ConfigError(f"`{name}` is an option of {memory}, but `memory` is {','.join(measured)!r}")


def parse_counts(name: str, text: str) -> tuple[int, ...]:
    """Parse `10,50` into numbers."""
    return _parse_list(name, text, lambda part: _parse_count(name, part, text))


def parse_samples(text: str) -> tuple[int | None, ...]:
    """Parse `10,all` into numbers, None for all."""
    return _parse_list("samples", text, lambda part: None if part == ALL else _parse_count("samples", part, text))


def make_setting(
    device: str,
    batch_size: int,
    *,
    channels_last: bool = False,
    autocast: str | None = None,
    compile: tuple[str, ...] = (),
    graph: bool = False,
) -> Setting:
    if autocast is not None:
        parse_choice("autocast", autocast)
    with reraise_as(ConfigError):
        usable = usable_device(device)
    if usable.type not in ("cpu", "cuda"):
        raise ConfigError(f"`device` must be cpu or cuda, got {device!r}")
    if graph and usable.type != "cuda":
        raise ConfigError(f"`graph` needs a CUDA device, got {device!r}")
    return Setting(usable, batch_size, channels_last, autocast, compile, graph)


def parse_memory_limit(text: str | None, device: torch.device) -> int:
    """Return the bytes that a case may hold: as given, or what most machines have to spare."""
    if text is not None:
        try:
            return parse_bytes(text)
        except ValueError:
            raise ConfigError(f"`max-memory` must be a size such as '4GB' or a number of bytes, got {text!r}") from None
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] // 3
    return 10**9


def make_subject(model: str, input_shape: str | None, classes: int) -> Subject:
    """Return a model by name, for inputs of another shape (`3x32x32`) than it is measured with; one's own needs one."""
    with reraise_as(ConfigError):
        MODELS.find("model", model)
    usual = SUBJECTS.get(model)
    if usual is None and input_shape is None:
        raise ConfigError(f"`input` must be given for {model}, such as 3x32x32 or 784, got none")
    shape = usual.input_shape if usual is not None and input_shape is None else _parse_shape(input_shape or "", usual)
    made = Subject(model, shape, {} if usual is None else usual.sizes, classes)
    with reraise_as(ConfigError):
        try:
            made.outline()  # models check their input themselves
            if usual is None:
                check_outputs(made.build(), torch.zeros(1, *shape), classes, model)
        except (TypeError, RuntimeError) as error:  # of a model of one's own
            raise ConfigError(f"`model` {model!r} cannot be built: {' '.join(str(error).split())[:200]}") from error
    return made


def _parse_shape(text: str, usual: Subject | None) -> tuple[int, ...]:
    parts = text.split("x")
    if not all(part.isdecimal() and int(part) for part in parts) or (usual is not None and len(parts) != 3):
        raise ConfigError(f"`input` must be channels x height x width, such as 3x32x32, got {text!r}")
    return tuple(map(int, parts))


def _parse_count(name: str, part: str, text: str) -> int:
    if not part.isdecimal() or int(part) < 1:
        raise ConfigError(f"`{name}` must be whole numbers of at least 1 with commas between, got {text!r}")
    return int(part)


def _parse_list(name: str, text: str, read: Callable[[str], Value]) -> tuple[Value, ...]:
    values = [read(part.strip()) for part in text.split(",")]
    for value in values:
        if values.count(value) > 1:
            raise ConfigError(f"`{name}` must name each one once, got {text!r}")
    return tuple(values)
