"""The grid of a sweep: every combination of the values given, with every seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from sfao.lab.run.config import RunConfig, parse_setting
from sfao.lab.run.errors import ConfigError, reraise_as
from sfao.lab.run.worker import Job
from sfao.lab.safe_io import InputError, parse_yaml
from sfao.lab.tune.search import Search, check_may_vary
from sfao.lab.tune.setting_text import shorten_names, write_value

Axes = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Combination:
    """One value from every axis, and its jobs, one per seed."""

    settings: dict[str, Any]
    jobs: list[Job]


def split_axes(texts: Sequence[str]) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Split `--set` texts into {name: value} and the axes {name: values}, those with commas between values."""
    fixed: dict[str, Any] = {}
    axes: dict[str, list[Any]] = {}
    for text in texts:
        listed = _split_values(text.partition("=")[2])
        name, value = parse_setting(text) if len(listed) < 2 else (text.partition("=")[0].strip(), listed)
        fixed.pop(name, None)  # as elsewhere, the last one counts
        axes.pop(name, None)
        if len(listed) < 2:
            fixed[name] = value
        else:
            check_may_vary(name)
            axes[name] = listed
    if not axes:
        raise ConfigError(
            "`--set` must list values of at least one setting, such as options.strength=100,1000, got "
            + (", ".join(map(repr, texts)) or "none")
        )
    return fixed, axes


def _split_values(text: str) -> list[Any]:
    """Return the values between commas; commas inside brackets are part of a value."""
    try:
        listed = parse_yaml(f"[{text}]")
    except InputError:  # `parse_setting` tells why
        return []
    return listed if isinstance(listed, list) else []


def plan_grid(search: Search, axes: Axes, out: Path) -> list[Combination]:
    """Return all combinations, the last axis varying fastest; a ConfigError for the first that breaks a rule."""
    planned: list[Combination] = []
    known: dict[str, dict[str, Any]] = {}
    for values in product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        with reraise_as(ConfigError, f"{search.method}: "):
            config = search.configure(chosen)
        settings = {name: read_setting(config, name) for name in axes}
        _check_new(config, known, settings)
        label = _label(search.method, settings)
        jobs = [Job(search.configure(chosen, seed), out / f"{label}-{seed}") for seed in search.seeds]
        planned.append(Combination(settings, jobs))
    return planned


def read_setting(config: RunConfig, name: str) -> Any:
    """Return the value of a dotted name as it was understood: 1000.0 for `1e3`."""
    value: Any = config.model_dump()
    for key in name.split("."):
        value = value[key]
    return value


def _check_new(config: RunConfig, known: dict[str, dict[str, Any]], settings: dict[str, Any]) -> None:
    """Refuse a value that is given twice, also in two spellings."""
    key = config.model_dump_json()
    if key in known:
        twice = next((name for name in settings if known[key][name] == settings[name]), next(iter(settings)))
        raise ConfigError(f"`--set {twice}` must list each value once, got {write_value(settings[twice])} twice")
    known[key] = settings


def _label(method: str, settings: Mapping[str, Any]) -> str:
    """Return the start of a folder's name: ewc-strength=1000.0-fisher=batch."""
    names = shorten_names(settings)
    parts = [f"{names[name]}={write_value(value)}" for name, value in settings.items()]
    safe = "".join(letter if letter.isalnum() or letter in "-+=._,[]" else "_" for letter in "-".join(parts))
    return f"{method}-{safe}"
