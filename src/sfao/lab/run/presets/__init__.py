"""Settings of methods by name of preset, as YAML in this folder.

A preset is {method: {benchmark: {"settings": ..., "source": ...}}}, where "*" stands for every method or every
benchmark. `like: PRESET` in the place of "settings" takes the options that another preset has there. `recommended` is
the default preset.
"""

from functools import cache
from importlib.resources import files
from typing import Any

from sfao.checks import check_choice
from sfao.lab.safe_io import parse_yaml

RECOMMENDED = "recommended"


def preset_names() -> tuple[str, ...]:
    names = [file.name.removesuffix(".yaml") for file in files(__name__).iterdir() if file.name.endswith(".yaml")]
    return tuple(sorted(names))


def preset_settings(preset: str, method: str, benchmark: str) -> list[dict[str, Any]]:
    """Return the settings of a preset for a method on a benchmark, general ones first, each overridden by the next."""
    return [dict(entry["settings"]) for entry in _entries(preset, method, benchmark)]


def preset_source(preset: str, method: str, benchmark: str) -> str:
    """Return the source of those settings, in words or as the command that found them; empty when there are none."""
    return " ".join(str(entry["source"]).strip() for entry in _entries(preset, method, benchmark))


def _entries(preset: str, method: str, benchmark: str) -> list[dict[str, Any]]:
    check_choice("preset", preset, preset_names())
    content = _read(preset)
    found = [content.get(who, {}).get(where) for who in ("*", method) for where in ("*", benchmark)]
    return [_resolve_like(entry, method, benchmark) for entry in found if entry is not None]


def _resolve_like(entry: dict[str, Any], method: str, benchmark: str) -> dict[str, Any]:
    if "like" not in entry:
        return entry
    options: dict[str, Any] = {}
    for settings in preset_settings(entry["like"], method, benchmark):
        options |= settings.get("options", {})
    source = f"{entry['source']} {preset_source(entry['like'], method, benchmark)}"
    return {"settings": {"options": options}, "source": source.strip()}


@cache
def _read(preset: str) -> dict[str, Any]:
    content: dict[str, Any] = parse_yaml((files(__name__) / f"{preset}.yaml").read_text()) or {}
    return content
