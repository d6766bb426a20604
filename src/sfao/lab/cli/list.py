"""sfao list: the benchmarks, methods and models that can be run."""

import inspect
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfao.lab.cli.terminal import console, say, say_json, spoken_errors, table

if TYPE_CHECKING:
    from sfao.lab.methods import Method
    from sfao.lab.names import Registry


def list_all(
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Tracebacks for errors.")] = False,
) -> None:
    """Benchmarks, methods with their options, models with their sizes."""
    with spoken_errors(debug):
        known = collect_lists()
        if as_json:
            say_json(known)
        else:
            print_lists(known)


def collect_lists() -> dict[str, dict[str, Any]]:
    from sfao.lab.methods import METHODS
    from sfao.lab.models import MODELS
    from sfao.lab.streams.suite import BENCHMARKS

    return {
        "benchmarks": {
            name: {"data": b.dataset, "kind": b.split.name, "tasks": b.tasks, "settings": b.settings}
            for name, b in find_all(BENCHMARKS).items()
        },
        "methods": {
            name: {
                "about": read_summary(method),
                "optimizers": list(method.optimizers),
                "options": method.Options().model_dump(mode="json"),
            }
            for name, method in find_all(METHODS).items()
        },
        "models": {name: {"sizes": read_sizes(build)} for name, build in find_all(MODELS).items()},
    }


def find_all(names: "Registry[Any]") -> dict[str, Any]:
    """Return {name: thing}, of ours and of installed packages; one that cannot be had is told on the error stream."""
    found = {}
    for name in names.list_all():
        try:
            found[name] = names.load("name", name)
        except ValueError as error:
            say(f"sfao: left out: {error}")
    return found


def read_summary(method: "type[Method]") -> str:
    """Return the first line of the method's file: its name and its origin."""
    text = sys.modules[method.__module__].__doc__ or ""
    return text.strip().partition("\n")[0]


def read_sizes(build: Any) -> dict[str, Any]:
    parameters = list(inspect.signature(build).parameters.values())[2:]  # after the input shape and the outputs
    return {p.name: None if p.default is inspect.Parameter.empty else p.default for p in parameters}


def print_lists(known: dict[str, dict[str, Any]]) -> None:
    benchmarks = table("benchmark", "data", "kind", "tasks", "model and settings")
    for name, entry in known["benchmarks"].items():
        settings = dict(entry["settings"])
        chosen = f"{_describe_model(settings.pop('model'))} {_join_pairs(settings)}"
        benchmarks.add_row(name, entry["data"], entry["kind"], str(entry["tasks"] or "all"), chosen)
    methods = table("method", "what it is", "optimizers", "options")
    for name, entry in known["methods"].items():
        methods.add_row(name, entry["about"], " ".join(entry["optimizers"]), _join_pairs(entry["options"]))
    models = table("model", "sizes")
    for name, entry in known["models"].items():
        models.add_row(name, _join_pairs(entry["sizes"]))
    screen = console()
    for each in (benchmarks, methods, models):
        screen.print(each, "")
    screen.print("Change what you like: --set epochs=1 --set model.hidden=784 --set options.NAME=VALUE")


def _describe_model(model: dict[str, Any]) -> str:
    sizes = {name: value for name, value in model.items() if name != "name"}
    return f"{model['name']} {_join_pairs(sizes)}".strip()


def _join_pairs(values: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())
