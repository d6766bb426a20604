"""Settings of methods by name of preset, as YAML in this folder.

A preset is {method: {benchmark or "*": {"settings": ..., "source": ...}}}. `default` holds what a run gets when
nothing else is said.
"""

from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from sfao.gating.options import check_choice


def preset_names() -> tuple[str, ...]:
    names = [file.name.removesuffix(".yaml") for file in files(__name__).iterdir() if file.name.endswith(".yaml")]
    return tuple(sorted(names))


def preset_settings(preset: str, method: str, benchmark: str) -> dict[str, Any]:
    """What a preset says of a method on a benchmark; empty when it says nothing."""
    return dict(_entry(preset, method, benchmark).get("settings", {}))


def preset_source(preset: str, method: str, benchmark: str) -> str:
    """Where those settings come from, in words or as the command that found them."""
    return str(_entry(preset, method, benchmark).get("source", ""))


def _entry(preset: str, method: str, benchmark: str) -> dict[str, Any]:
    check_choice("preset", preset, preset_names())
    of_method = _read(preset).get(method, {})
    entry: dict[str, Any] = of_method.get(benchmark, of_method.get("*", {}))
    return entry


@cache
def _read(preset: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((files(__name__) / f"{preset}.yaml").read_text()) or {}
    return content
