"""sfao list: benchmarks, methods, models and settings."""

import inspect
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfao.lab.cli.options import AsJson, Debug
from sfao.lab.cli.terminal import console, error_handler, print_json, print_stderr, table

if TYPE_CHECKING:
    from sfao.lab.methods import Method
    from sfao.lab.names import Registry

#: What can be listed; settings only by name, as they are many.
KINDS = ("benchmarks", "methods", "models", "settings")


def list_known(
    kind: Annotated[
        str | None, typer.Argument(help="benchmarks, methods, models or settings.", show_default="all but settings")
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """List benchmarks, methods with their options, and models with their sizes; or all settings of a run."""
    with error_handler(debug):
        from sfao.checks import check_choice
        from sfao.lab.run.errors import ConfigError, reraise_as

        if kind is not None:
            with reraise_as(ConfigError):
                check_choice("kind", kind, KINDS)
        known = {name: COLLECT[name]() for name in ([kind] if kind else KINDS[:-1])}
        if as_json:
            print_json(known[kind] if kind else known)
            return
        for name, found in known.items():
            PRINT[name](found)
        if kind is None:
            console().print("Change settings with --set, such as --set epochs=1; `sfao list settings` names them all.")


def _find_all(names: "Registry[Any]") -> dict[str, Any]:
    """Return {name: thing}, of ours and of installed packages; those that can't be loaded are left out and named."""
    found = {}
    for name in names.list_all():
        try:
            found[name] = names.load("name", name)
        except ValueError as error:
            print_stderr(f"sfao: left out: {error}")
    return found


def _benchmarks() -> dict[str, Any]:
    from sfao.lab.streams.suite import BENCHMARKS

    return {
        name: {"data": each.dataset, "kind": each.split.name, "tasks": each.tasks, "settings": each.settings}
        for name, each in _find_all(BENCHMARKS).items()
    }


def _methods() -> dict[str, Any]:
    from sfao.lab.methods import METHODS

    def summarize(method: "type[Method]") -> str:
        """Return the first line of the method's file: its name and its origin."""
        return (sys.modules[method.__module__].__doc__ or "").strip().partition("\n")[0]

    return {
        name: {
            "about": summarize(method),
            "optimizers": list(method.optimizers),
            "options": method.Options().model_dump(mode="json"),
        }
        for name, method in _find_all(METHODS).items()
    }


def _models() -> dict[str, Any]:
    from sfao.lab.models import MODELS

    def read_sizes(build: Any) -> dict[str, Any]:
        parameters = list(inspect.signature(build).parameters.values())[2:]  # after the input shape and the outputs
        return {p.name: None if p.default is inspect.Parameter.empty else p.default for p in parameters}

    return {name: {"sizes": read_sizes(build)} for name, build in _find_all(MODELS).items()}


def _settings() -> dict[str, Any]:
    from sfao.lab.run.settings import list_settings

    return {part: [row._asdict() for row in rows] for part, rows in list_settings().items()}


def _print_benchmarks(benchmarks: dict[str, Any]) -> None:
    rows = table("benchmark", "data", "kind", "tasks", "model and settings")
    for name, each in benchmarks.items():
        model = dict(each["settings"]["model"])
        settings = {key: value for key, value in each["settings"].items() if key != "model"}
        text = " ".join(filter(None, (model.pop("name"), _join(model), _join(settings))))
        rows.add_row(name, each["data"], each["kind"], str(each["tasks"] or "all"), text)
    console().print(rows, "")


def _print_methods(methods: dict[str, Any]) -> None:
    rows = table("method", "what it is", "optimizers", "options")
    for name, each in methods.items():
        rows.add_row(name, each["about"], " ".join(each["optimizers"]), _join(each["options"]))
    console().print(rows, "")


def _print_models(models: dict[str, Any]) -> None:
    rows = table("model", "sizes")
    for name, each in models.items():
        rows.add_row(name, _join(each["sizes"]))
    console().print(rows, "")


def _print_settings(parts: dict[str, Any]) -> None:
    for part, settings in parts.items():
        rows = table("of every run" if part == "run" else part, "type", "default", "meaning")
        for each in settings:
            rows.add_row(*each.values())
        console().print(rows, "")


def _join(values: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


COLLECT = {"benchmarks": _benchmarks, "methods": _methods, "models": _models, "settings": _settings}
PRINT = {
    "benchmarks": _print_benchmarks,
    "methods": _print_methods,
    "models": _print_models,
    "settings": _print_settings,
}
