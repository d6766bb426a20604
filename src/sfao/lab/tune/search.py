"""One method on one benchmark, some settings fixed and some to be chosen, all measured on validation data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfao.lab.run.config import RunConfig, configure
from sfao.lab.run.errors import ConfigError
from sfao.lab.run.presets import RECOMMENDED
from sfao.lab.streams.suite import BENCHMARKS

#: Settings that say what is measured: candidates that differ in one of them cannot be ranked.
CONDITIONS = (
    "benchmark",
    "method",
    "seed",
    "scenario",
    "tasks",
    "order",
    "fraction",
    "validation",
    "evaluate",
    "device",
    "deterministic",
)
#: The share of the training images that is held out, of a small data set and of others, as `recommended` was chosen.
SMALL_SET, SMALL_SHARE, USUAL_SHARE = 10_000, 0.2, 0.1


@dataclass(frozen=True)
class Search:
    """What is the same for all candidates."""

    benchmark: str
    method: str
    seeds: Sequence[int]
    #: Dotted names and values that are fixed, among them the share of the training images that is held out.
    fixed: Mapping[str, Any]
    preset: str = RECOMMENDED
    file: Path | None = None

    def configure(self, chosen: Mapping[str, Any], seed: int | None = None) -> RunConfig:
        """Return the configuration of a run with the chosen settings; a ConfigError where they break a rule."""
        return configure(
            self.benchmark,
            self.method,
            seed=self.seeds[0] if seed is None else seed,
            preset=self.preset,
            file=self.file,
            settings={**self.fixed, **chosen},
        )

    @property
    def share(self) -> float:
        """The share of the training images that is held out."""
        return float(self.fixed["validation"])


def make_search(
    benchmark: str,
    method: str,
    seeds: Sequence[int],
    settings: Mapping[str, Any],
    *,
    share: float | None = None,
    preset: str = RECOMMENDED,
    file: Path | None = None,
) -> Search:
    """Return a search that evaluates on training images held out: `share` of them, if the settings do not say."""
    if settings.get("evaluate", "validation") != "validation":
        raise ConfigError(
            f"`evaluate` must be validation, as settings are never chosen on test data, got {settings['evaluate']!r}"
        )
    if share is None:
        share = settings.get("validation")
    if share is None:
        plain = configure(benchmark, method, seed=seeds[0], preset=preset, file=file, settings=settings)
        share = plain.validation or _choose_share(benchmark)
    fixed = {**settings, "evaluate": "validation", "validation": share}
    search = Search(benchmark, method, seeds, fixed, preset, file)
    search.configure({})
    return search


def _choose_share(benchmark: str) -> float:
    return SMALL_SHARE if BENCHMARKS[benchmark].count_training_examples() < SMALL_SET else USUAL_SHARE


def check_may_vary(name: str) -> None:
    """Refuse to choose a setting that says what is measured."""
    if name in CONDITIONS:
        raise ConfigError(f"`{name}` must be the same for all, or they could not be ranked; give it one value")
