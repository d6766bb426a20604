"""Arguments of `bench`, parsed and checked; a ConfigError names argument, rule and value."""

import re
from collections.abc import Callable
from typing import TypeVar

import torch

from sfao.checks import check_choice
from sfao.lab.bench.cases import DECISIONS, SUBJECTS
from sfao.lab.bench.training import AUTOCAST, COMPILED, Setting
from sfao.lab.run.device import usable_device
from sfao.lab.run.errors import ConfigError, reraise_as
from sfao.options import CHOICES

Value = TypeVar("Value")

ALL = "all"
BYTES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
KNOWN = {
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
) -> Setting:
    if autocast is not None:
        parse_choice("autocast", autocast)
    with reraise_as(ConfigError):
        usable = usable_device(device)
    if usable.type not in ("cpu", "cuda"):
        raise ConfigError(f"`device` must be cpu or cuda, got {device!r}")
    return Setting(usable, batch_size, channels_last, autocast, compile)


def parse_memory_limit(text: str | None, device: torch.device) -> int:
    """Return the bytes that a case may hold: as given, or what most machines have to spare."""
    if text is not None:
        return parse_bytes(text)
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] // 3
    return 10**9


def parse_bytes(text: str) -> int:
    """Parse `4GB` into a number of bytes."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    if found is None or found[2].upper() not in BYTES or float(found[1]) * BYTES[found[2].upper()] < 1:
        raise ConfigError(f"`max-memory` must be a size such as '4GB' or a number of bytes, got {text!r}")
    return int(float(found[1]) * BYTES[found[2].upper()])


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
