"""Settings as text: the list of them all, and one-line errors for values that break a rule."""

import re
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sfao.checks import is_number, nearest
from sfao.lab.console import quote
from sfao.lab.methods import METHODS
from sfao.lab.models import MODELS
from sfao.lab.names import read_parameters
from sfao.lab.safe_io import find_lines

if TYPE_CHECKING:
    from inspect import Parameter

Keys = tuple[str, ...]

#: The largest float and integer of a setting; float32 goes on to 3e38, so that a value may still be multiplied.
MAX_FLOAT, MAX_INTEGER = 1e38, 10**15
#: Names of JSON types, for readers.
_TYPES = {"integer": "integer", "number": "number", "string": "text", "boolean": "true or false", "null": "null"}
_BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


class Setting(NamedTuple):
    """A row of `sfao list settings`; `default` is empty for a required setting."""

    name: str
    type: str
    default: str
    meaning: str


def list_settings() -> dict[str, list[Setting]]:
    """Return all settings as `--set` and a YAML file name them.

    The keys are `run`, then `method NAME` for the options of every method that has any, then `model NAME` for the
    sizes of every model.
    """
    from sfao.lab.run.config import GuardConfig, ModelConfig, RunConfig

    parts: dict[str, type[BaseModel]] = {"model": ModelConfig, "guard": GuardConfig}
    run: list[Setting] = []
    for setting in _list_fields(RunConfig):
        run += [setting] if setting.name != "model" else []
        if setting.name in parts:
            run += _list_fields(parts[setting.name], f"{setting.name}.")
    methods = {f"method {name}": _list_fields(method.Options, "options.") for name, method in METHODS.items()}
    models = {
        f"model {name}": [_describe_size(each, build.__doc__ or "") for each in read_parameters(build)[2:]]
        for name, build in MODELS.items()
    }
    return {"run": run, **{name: rows for name, rows in {**methods, **models}.items() if rows}}


def _list_fields(model: type[BaseModel], prefix: str = "") -> list[Setting]:
    schemas = model.model_json_schema()["properties"]
    rows = []
    for name, field in model.model_fields.items():
        default = "" if field.is_required() else _show(field.get_default(call_default_factory=True))
        rows.append(Setting(prefix + name, _describe_type(schemas[name]), default, field.description or ""))
    return rows


def _describe_type(schema: Mapping[str, Any]) -> str:
    """Return a JSON schema in words: `number > 0`, `test or validation`, `integer >= 1 or null`."""
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    if "anyOf" in schema:
        return " or ".join(_describe_type(each) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_describe_type(schema['items'])}" if "items" in schema else "list"
    bounds = [f"{sign} {schema[name]:g}" for name, sign in _BOUNDS.items() if abs(schema.get(name, inf)) < MAX_INTEGER]
    return " ".join([_TYPES.get(schema.get("type", ""), "settings"), *bounds])


def _describe_size(size: "Parameter", docstring: str) -> Setting:
    told = re.search(rf"^ +{size.name}: (.+)$", docstring, re.MULTILINE)
    kind = size.annotation if isinstance(size.annotation, str) else getattr(size.annotation, "__name__", None)
    kind = "" if size.annotation is size.empty else kind or str(size.annotation)
    default = "" if size.default is size.empty else _show(size.default)
    return Setting(f"model.{size.name}", kind, default, told[1] if told else "")


def _show(default: Any) -> str:
    """Return a default as YAML has it."""
    text: str = yaml.safe_dump(default, default_flow_style=True, width=inf)
    return text.removesuffix("...\n").strip()


def explain_error(error: ValidationError, values: Any, file: Path | None, prefix: Keys, known: Keys) -> str:
    """Describe the first error in `values`: the field, the rule, the value and, if it is from a file, the line."""
    complaints = [(_find_keys(each, values), each) for each in error.errors()]
    keys, first = complaints[0]
    # A value of several types has a complaint from each; the one that got furthest into it knows best.
    keys, first = max((one for one in complaints if one[0][:1] == keys[:1]), key=lambda one: len(one[0]))
    path = (*prefix, *keys)
    message = first["msg"].removeprefix("Value error, ")
    where = find_place(file, path, message)
    if first["type"] == "extra_forbidden":
        return f"{where}unknown setting `{'.'.join(path)}`{nearest(path[-1], known)}"
    if first["type"] == "value_error":  # a check of our own: it names argument, rule and value
        return where + message
    rules = dict.fromkeys(each["msg"].removeprefix("Input should be ") for own, each in complaints if own == keys)
    said = message if len(rules) == 1 else f"Input should be {' or '.join(rules)}"
    return f"{where}`{'.'.join(path)}`: {said[0].lower()}{said[1:]}, got {quote(first['input'])}"


def _find_keys(complaint: ErrorDetails, values: Any) -> Keys:
    """Return the keys of the wrong value, without the type names that pydantic inserts, such as `order.str`."""
    if complaint["type"] == "missing":
        return tuple(map(str, complaint["loc"]))
    found = []
    for part in complaint["loc"]:
        try:
            values = values[part]
        except (KeyError, IndexError, TypeError):
            continue
        found.append(str(part))
    return tuple(found)


def find_place(file: Path | None, path: Keys, message: str = "") -> str:
    """Return `file:line: ` of the setting that the message names, else of the path; empty if the file has neither."""
    if file is None:
        return ""
    lines = find_lines(file)
    named = re.search(r"`([\w.]+)", message)
    inner = tuple(named[1].split(".")) if named else ()
    path = tuple(key for key in path if not key.isdecimal())  # an item of a list stands at the line of the list
    line = next((lines[each] for each in ((*path, *inner), inner, path) if each in lines), None)
    return "" if line is None else f"{file}:{line}: "


def check_magnitudes(settings: Mapping[str, Any], file: Path | None) -> None:
    """Raise a ValueError for the first number, at any depth, that is too large for tensors."""
    for path, value in _iter_numbers(settings):
        most = MAX_INTEGER if isinstance(value, int) else MAX_FLOAT
        if not abs(value) <= most:
            name = ".".join(path)
            raise ValueError(f"{find_place(file, path)}`{name}` must be at most {most:g} in size, got {value:g}")


def _iter_numbers(value: Any, path: Keys = ()) -> Iterator[tuple[Keys, float]]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _iter_numbers(each, (*path, str(name)))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _iter_numbers(each, path)
    elif is_number(value):
        yield path, value
