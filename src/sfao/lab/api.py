"""Methods compared on one's own data, and each of them in one's own loop."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import ValidationError
from torch import nn

from sfao.checks import check_choice, check_count
from sfao.lab.console import PlainConsole
from sfao.lab.methods import METHODS, Method, Training
from sfao.lab.methods.optimizers import MOMENTUM_FORMS
from sfao.lab.models import MODELS
from sfao.lab.names import Registry
from sfao.lab.report.comparison import Comparison, compare_records
from sfao.lab.report.comparison_table import as_markdown, print_comparison
from sfao.lab.run.compare import compare as run_and_collect
from sfao.lab.run.compare import run_here
from sfao.lab.run.errors import ConfigError
from sfao.lab.run.jobs import plan
from sfao.lab.run.pool import run_all
from sfao.lab.run.presets import RECOMMENDED
from sfao.lab.run.record import Record
from sfao.lab.run.settings import explain_error
from sfao.lab.streams.own import read_tasks, split_own
from sfao.lab.streams.stream import Stream
from sfao.lab.streams.suite import BENCHMARKS

#: Columns of the table as text.
WIDTH = 120
#: The name, in records, of a stream that is given as data sets.
OWN_STREAM = "own"


@dataclass(frozen=True, repr=False)
class Result:
    """The records of a comparison, which prints as its table."""

    records: list[Record]
    comparison: Comparison
    #: The folder of the runs; None if they were not kept.
    folder: Path | None

    def means(self, metric: str = "average_accuracy") -> dict[str, float]:
        """Return {method: mean of a metric over the seeds that ended well}."""
        done = [record for record in self.records if record.status == "done"]
        known = dict.fromkeys(name for record in done for name in record.metrics)
        check_choice("metric", metric, tuple(known))
        values: dict[str, list[float]] = {}
        for record in done:
            values.setdefault(record.method, []).append(record.metrics[metric])
        return {method: sum(own) / len(own) for method, own in values.items()}

    def __str__(self) -> str:
        console = PlainConsole(file=StringIO(), width=WIDTH)
        with console.capture() as captured:
            print_comparison(self.comparison, console)
        return captured.get().rstrip()

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        return as_markdown(self.comparison)


def compare(
    stream: Any,
    *,
    methods: Sequence[str | type[Method]] = ("sgd", "ewc", "sfao", "drift-bound"),
    model: str | nn.Module | Callable[..., nn.Module] | None = None,
    seeds: int | Sequence[int] = 3,
    scenario: str = "domain",
    settings: Mapping[str, Any] | None = None,
    preset: str = RECOMMENDED,
    out: str | Path | None = None,
    resume: bool = False,
    workers: int = 1,
    threads: int = 1,
    data_root: str | Path | None = None,
) -> Result:
    """Run every method with every seed on a stream of tasks, and compare them.

    Args:
        stream: [(train, test), ...] or {name: (train, test)}, map-style data sets of (tensor, label); a function that
            returns such tasks; or the name of a benchmark, `module:attribute` for one's own.
        methods: names as `sfao list` has them, `module:attribute`, or classes derived from `Method`.
        model: a name, a function or class that takes (input_shape, outputs), or nothing, or a module, of which every
            run has a copy; by default that of the benchmark, for data sets an MLP.
        seeds: how many, or which.
        scenario: `domain`, `task` or `class`.
        settings: as after `--set`, such as {"epochs": 5, "ewc:options.strength": 100}.
        preset: whose settings to start from.
        out: the folder of the runs, to go on with or to report later; by default nothing is kept.
        resume: go on with unfinished runs in that folder.
        workers: processes at a time; above 1, all that is one's own must be given by name.
        threads: CPU threads of a run; more than one rarely helps a small model.
        data_root: where the data of a benchmark lie.
    """
    check_count("workers", workers)
    check_count("threads", threads)
    given = {"stream": stream, "model": model, **{f"methods[{number}]": one for number, one in enumerate(methods)}}
    objects = [name for name, thing in given.items() if not isinstance(thing, str | None)]
    if workers > 1 and objects:
        raise ConfigError(
            f"`workers` above 1 needs names that other processes can import, such as 'my_module:tasks', "
            f"got {type(given[objects[0]]).__name__} as `{objects[0]}`"
        )
    with ExitStack() as lent:
        benchmark = stream if isinstance(stream, str) else _lend(lent, BENCHMARKS, OWN_STREAM, stream)
        names = [one if isinstance(one, str) else _lend(lent, METHODS, _label(one), one) for one in methods]
        chosen = {"scenario": scenario, **(settings or {})}
        if model is not None:
            chosen["model.name"] = model if isinstance(model, str) else _lend(lent, MODELS, _label(model), model)
        folder = Path(lent.enter_context(TemporaryDirectory())) if out is None else Path(out)
        jobs = plan(benchmark, names, _list_seeds(seeds), folder, preset=preset, settings=chosen)
        records = run_and_collect(
            jobs,
            data_root=None if data_root is None else Path(data_root),
            resume=resume,
            workers=workers,
            threads=threads,
            run=run_all if workers > 1 else run_here,
        )
        return Result(records, compare_records(records), None if out is None else folder)


def make_stream(
    tasks: Any,
    *,
    scenario: str = "domain",
    order: str | Sequence[int] | None = None,
    seed: int = 0,
    validation: float = 0.0,
) -> Stream:
    """Return one's own tasks, as `compare` takes them, as a stream; each task has what the hooks of a method need."""
    data = read_tasks(tasks, OWN_STREAM)
    return split_own(data, scenario=scenario, order=order, seed=seed, validation=validation)


def make_method(
    method: str | type[Method],
    model: nn.Module,
    *,
    lr: float,
    optimizer: str = "sgd",
    momentum: float = 0.0,
    momentum_form: str = MOMENTUM_FORMS[0],
    weight_decay: float = 0.0,
    batch_size: int = 32,
    seed: int = 0,
    **options: Any,
) -> Method:
    """Return a method for one's own loop, which updates the model; `options` are those that `sfao list` has.

    `batch_size` is that of the passes that the method makes itself, at the end of a task.
    """
    kind = (
        METHODS.load("method", method) if isinstance(method, str) else METHODS.adapt("method", _label(method), method)
    )
    training = Training(lr, momentum, momentum_form, weight_decay, batch_size, seed, optimizer)
    try:
        return kind(model, training, kind.Options(**options))
    except ValidationError as error:
        raise ConfigError(explain_error(error, options, None, (), tuple(kind.Options.model_fields))) from error


def _lend(lent: ExitStack, registry: Registry[Any], name: str, thing: Any) -> str:
    """Make a thing known by a name until the context closes; return the name."""
    lent.enter_context(registry.override({name: thing}))
    return name


def _label(thing: Any) -> str:
    """Return `module:attribute` of a class, a function, or a module's class."""
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}:{named.__qualname__}"


def _list_seeds(seeds: int | Sequence[int]) -> list[int]:
    if isinstance(seeds, int):
        check_count("seeds", seeds)
        return list(range(seeds))
    return list(seeds)
