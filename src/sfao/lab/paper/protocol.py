"""The runs that a table or a figure of the paper needs, under a preset."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sfao.lab.paper.paper import paper_table, table_numbers
from sfao.lab.paper.provenance import provenance
from sfao.lab.paper.scale import WHOLE, Scale
from sfao.lab.run.config import RunConfig, configure
from sfao.lab.streams.suite import BENCHMARKS

PRESETS = ("paper", "released", "recommended")
METHODS = {"SGD": "sgd", "EWC": "ewc", "SI": "si", "OGD": "ogd", "SFAO": "sfao"}
#: The thresholds that the paper sweeps, by the columns of its tables.
THRESHOLDS = {"SFAO 0.95": 0.95, "SFAO 0.90": 0.90, "SFAO 0.85": 0.85, "SFAO 0.80": 0.80}
FIGURES = ("figure1", "figure2")

Settings = tuple[tuple[str, Any], ...]
WIDE: Settings = (("model.name", "wrn-28-10"),)

#: The streams of the paper by its names: benchmark and settings.
STREAMS: dict[str, tuple[str, Settings]] = {
    "Split MNIST": ("split-mnist", ()),
    "Permuted MNIST (3)": ("permuted-mnist", ()),
    "Permuted MNIST (5)": ("permuted-mnist", (("tasks", 5),)),
    "Split CIFAR-100": ("split-cifar100", ()),
    "Split CIFAR-100, WRN": ("split-cifar100", WIDE),
    "Split CIFAR-10": ("split-cifar10", ()),
    "Split CIFAR-10, WRN": ("split-cifar10", WIDE),
    "Split TinyImageNet": ("split-tinyimagenet", ()),
}

#: The stream of the tables that have one column per task.
STREAM_OF = {
    1: "Split MNIST",
    2: "Permuted MNIST (3)",
    3: "Split CIFAR-100",
    4: "Split CIFAR-100, WRN",
    5: "Split CIFAR-10",
    6: "Split CIFAR-10, WRN",
    7: "Split TinyImageNet",
}


@dataclass(frozen=True)
class Series:
    """A method on a benchmark with one choice of settings: as many runs as seeds."""

    preset: str
    benchmark: str
    method: str
    #: Dotted names and values, beyond the preset's.
    settings: Settings = ()

    def config(self, seed: int = 0, *, scale: Scale = WHOLE, **how: Any) -> RunConfig:
        """Return the configuration of a run; `how` are settings of all runs, such as the device."""
        settings = {**dict(self.settings), **how}
        if scale != WHOLE:
            settings |= scale.change(self.config(seed))
        return configure(self.benchmark, self.method, seed=seed, preset=self.preset, settings=settings)

    @property
    def name(self) -> str:
        """The method and what is particular about it: sfao-accept0.90, si-task, sgd-fresh."""
        chosen = dict(self.settings)
        parts = [self.method]
        if "scenario" in chosen:
            parts.append(chosen["scenario"])
        if chosen.get("options.fresh"):
            parts.append("fresh")
        if "options.accept_above" in chosen:
            parts.append(f"accept{chosen['options.accept_above']:.2f}")
        return "-".join(parts)

    def place(self, scale: Scale = WHOLE) -> str:
        """The folder of all series on the same stream and model: permuted-mnist-tasks5, split-cifar10-wrn."""
        chosen = dict(self.settings)
        parts = [self.benchmark]
        if "tasks" in chosen:
            parts.append(f"tasks{chosen['tasks']}")
        if "model.name" in chosen:
            parts.append("wrn")
        return "-".join([*parts, *scale.parts])

    def folder(self, out: Path, seed: int, scale: Scale = WHOLE) -> Path:
        return out / self.preset / self.place(scale) / f"{self.name}-{seed}"

    @property
    def dataset(self) -> str:
        return BENCHMARKS[self.benchmark].dataset


@dataclass(frozen=True)
class Protocol:
    """The series that fill a table: {(row, column): series}; the column is "" where one fills a whole row."""

    cells: dict[tuple[str, str], Series]
    #: {column of table 10: series}; shown where it has been run, never run for the sake of this table.
    sweep: dict[str, Series]


def list_names() -> tuple[str, ...]:
    """Return the names of all tables and figures."""
    return (*(paper_table(number).name for number in table_numbers()), *FIGURES)


@cache
def protocol(table: int, preset: str, as_released: bool = False) -> Protocol:
    """Return the series of a table; `as_released` runs each row of tables 1 to 7 as the paper's was produced."""
    printed = paper_table(table)
    if printed.kind == "accuracy":
        stream = STREAM_OF[table]
        make = _released_row if as_released else _row
        cells = {(row, ""): make(table, row, preset) for row in printed.rows}
        return Protocol(cells, {name: _at(stream, preset, value) for name, value in THRESHOLDS.items()})
    return Protocol(
        {(row, column): _column(row, column, preset) for row in printed.rows for column in printed.columns}, {}
    )


def figure_series(name: str, preset: str) -> list[Series]:
    """Return the series of a figure: 1 shows all methods on Split MNIST, 2 the updates of SFAO."""
    methods = METHODS if name == "figure1" else {"SFAO": "sfao"}
    return [_on("Split MNIST", method, preset) for method in methods.values()]


def _row(table: int, row: str, preset: str) -> Series:
    return _on(STREAM_OF[table], METHODS[row], preset)


def _released_row(table: int, row: str, preset: str) -> Series:
    plain, changes = _row(table, row, preset), dict(provenance(table, row).settings)
    benchmark = changes.pop("benchmark", plain.benchmark)
    return Series(preset, benchmark, plain.method, tuple({**dict(plain.settings), **changes}.items()))


def _column(stream: str, column: str, preset: str) -> Series:
    if column in THRESHOLDS:
        return _at(stream, preset, THRESHOLDS[column])
    return _on(stream, METHODS[column], preset)


def _on(stream: str, method: str, preset: str) -> Series:
    benchmark, settings = STREAMS[stream]
    if (preset, method, settings) == ("released", "sfao", WIDE):
        settings = (*settings, ("options.accept_above", 0.85))  # SFAO_CIFAR.ipynb, where the others have 0.80
    return Series(preset, benchmark, method, settings)


def _at(stream: str, preset: str, threshold: float) -> Series:
    """Return SFAO at a threshold: the preset's own run where it is the preset's own threshold."""
    own = _on(stream, "sfao", preset)
    if own.config().options["accept_above"] == threshold:
        return own
    return Series(preset, own.benchmark, "sfao", (*STREAMS[stream][1], ("options.accept_above", threshold)))
