"""The runs behind each table and figure of the paper: methods, streams, settings and the share of the data."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sfao.lab.paper.tables import paper_table, table_numbers
from sfao.lab.run.config import RunConfig, configure
from sfao.lab.streams.suite import BENCHMARKS

PRESETS = ("paper", "released", "recommended")
FIGURES = ("figure1", "figure2")
METHODS = {"SGD": "sgd", "EWC": "ewc", "SI": "si", "OGD": "ogd", "SFAO": "sfao"}
#: The thresholds that the paper sweeps, by the columns of its tables.
THRESHOLDS = {"SFAO 0.95": 0.95, "SFAO 0.90": 0.90, "SFAO 0.85": 0.85, "SFAO 0.80": 0.80}

Settings = tuple[tuple[str, Any], ...]
WIDE: Settings = (("model.name", "wrn-28-10"),)

#: {stream, as the paper names it: (benchmark, settings)}
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

#: A quick run trains on this share of the data, at a learning rate that is at most this many times higher: with less
#: data alone it would show untrained networks, with an even higher rate it would diverge.
QUICK_FRACTION, MAX_LR_FACTOR = 0.1, 10.0
#: The model of a quick run in place of one that takes days on a CPU.
QUICK_MODELS: dict[str, dict[str, Any]] = {
    "wrn-28-10": {"name": "sfao.lab.models:wide_resnet", "depth": 10, "widen": 1},
}


@dataclass(frozen=True)
class Scale:
    """The share of the training data; a quick scale also raises the learning rate and replaces large models."""

    fraction: float = 1.0
    is_quick: bool = False

    @property
    def lr_factor(self) -> float:
        """The factor that keeps lr times steps as on all data."""
        return min(1 / self.fraction, MAX_LR_FACTOR) if self.is_quick else 1.0

    @property
    def parts(self) -> list[str]:
        """What folder and file names of this scale end in; nothing for all of the data."""
        named = ["quick"] if self.is_quick else []
        is_usual = self.fraction == (QUICK_FRACTION if self.is_quick else 1.0)
        return named if is_usual else [*named, f"fraction{self.fraction:g}"]

    def settings(self, config: RunConfig) -> dict[str, Any]:
        """Return what this scale changes in the configuration of a run."""
        changed: dict[str, Any] = {"fraction": self.fraction}
        if self.is_quick:
            changed["lr"] = config.lr * self.lr_factor
            changed |= {f"model.{name}": value for name, value in QUICK_MODELS.get(config.model.name, {}).items()}
        return changed


WHOLE = Scale()


@dataclass(frozen=True)
class Series:
    """One method on one benchmark with one choice of settings: as many runs as seeds."""

    preset: str
    benchmark: str
    method: str
    #: Dotted names and values, on top of the preset's.
    settings: Settings = ()

    def config(self, seed: int = 0, *, scale: Scale = WHOLE, device: str = "cpu") -> RunConfig:
        """Return the configuration of the run with this seed."""
        settings = {**dict(self.settings), "device": device}
        if scale != WHOLE:
            settings |= scale.settings(self.config(seed))
        return configure(self.benchmark, self.method, seed=seed, preset=self.preset, settings=settings)

    @property
    def name(self) -> str:
        """The method and its particular settings: sfao-accept0.90, si-task, sgd-fresh."""
        chosen = dict(self.settings)
        parts = [self.method]
        if "scenario" in chosen:
            parts.append(chosen["scenario"])
        if chosen.get("options.fresh"):
            parts.append("fresh")
        if "options.accept_above" in chosen:
            parts.append(f"accept{chosen['options.accept_above']:.2f}")
        return "-".join(parts)

    def folder(self, out: Path, seed: int, scale: Scale = WHOLE) -> Path:
        """Return the folder of a run: OUT/released/split-cifar10-wrn/sfao-0."""
        chosen = dict(self.settings)
        place = [self.benchmark]
        if "tasks" in chosen:
            place.append(f"tasks{chosen['tasks']}")
        if "model.name" in chosen:
            place.append("wrn")
        return out / self.preset / "-".join([*place, *scale.parts]) / f"{self.name}-{seed}"

    @property
    def dataset(self) -> str:
        return BENCHMARKS[self.benchmark].dataset


def list_names() -> tuple[str, ...]:
    """Return the names of all tables and figures."""
    return (*(f"table{number}" for number in table_numbers()), *FIGURES)


def find_series(name: str, preset: str, as_released: bool = False) -> list[Series]:
    """Return the series that a table or a figure needs, by its name."""
    if name == "figure1":
        return [_on_stream("Split MNIST", method, preset) for method in METHODS.values()]
    if name == "figure2":
        return [_on_stream("Split MNIST", "sfao", preset)]
    return list(table_series(int(name.removeprefix("table")), preset, as_released).values())


@cache
def table_series(number: int, preset: str, as_released: bool = False) -> dict[tuple[str, str], Series]:
    """Return the series by row and column; the column is "" in tables 1 to 7, where a series fills a whole row.

    With `as_released`, each row of tables 1 to 7 has the scenario, model and data that the paper's row had.
    """
    table = paper_table(number)
    if table.kind != "accuracy":
        return {
            (row, column): _at_threshold(row, preset, THRESHOLDS[column])
            if column in THRESHOLDS
            else _on_stream(row, METHODS[column], preset)
            for row in table.rows
            for column in table.columns
        }
    plain = {row: _on_stream(table.stream, METHODS[row], preset) for row in table.rows}
    if not as_released:
        return {(row, ""): series for row, series in plain.items()}
    return {(row, ""): _change(series, table.sources[row].settings) for row, series in plain.items()}


def _change(series: Series, settings: dict[str, Any]) -> Series:
    changed = {**dict(series.settings), **settings}
    benchmark = changed.pop("benchmark", series.benchmark)
    return Series(series.preset, benchmark, series.method, tuple(changed.items()))


def _on_stream(stream: str, method: str, preset: str) -> Series:
    benchmark, settings = STREAMS[stream]
    if (preset, method, settings) == ("released", "sfao", WIDE):
        settings = (*settings, ("options.accept_above", 0.85))  # SFAO_CIFAR.ipynb, where the others have 0.80
    return Series(preset, benchmark, method, settings)


def _at_threshold(stream: str, preset: str, threshold: float) -> Series:
    """Return SFAO at a threshold; the preset's own series where that is its threshold."""
    own = _on_stream(stream, "sfao", preset)
    if own.config().options["accept_above"] == threshold:
        return own
    return Series(preset, own.benchmark, "sfao", (*STREAMS[stream][1], ("options.accept_above", threshold)))
