"""Settings as a user writes them: on a command line and in a file."""

import shlex
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from sfao.lab.run.config import RunConfig

#: Settings that belong to the choosing, not to what is chosen: a run with the best settings has its own.
NOT_CHOSEN = ("benchmark", "method", "seed", "validation", "evaluate")


def write_value(value: Any) -> str:
    """Return the text that `--set` reads as this value."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=sys.maxsize)
    return text.removesuffix("...\n").strip()


def write_set_line(settings: Mapping[str, Any]) -> str:
    """Return `--set name=value ...`, ready for a shell."""
    chosen = {name: value for name, value in settings.items() if name not in NOT_CHOSEN}
    return " ".join(f"--set {shlex.quote(f'{name}={write_value(value)}')}" for name, value in chosen.items())


def write_config_file(config: RunConfig, comments: Iterable[str]) -> str:
    """Return a complete YAML file for `--config`, without the settings that belong to the choosing."""
    values = {name: value for name, value in config.model_dump().items() if name not in NOT_CHOSEN}
    return "".join(f"# {line}\n" for line in comments) + yaml.safe_dump(values, sort_keys=False)


def shorten_names(names: Iterable[str]) -> dict[str, str]:
    """Return {dotted name: its last part}; the whole name where two have the same last part."""
    last = {name: name.rpartition(".")[2] for name in names}
    return {name: part if list(last.values()).count(part) == 1 else name for name, part in last.items()}
