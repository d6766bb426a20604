"""The settings of runs: those that differ between them, and all of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sfao.lab.report.comparison import flatten_settings
from sfao.lab.report.runs import LoadedRun

#: Variants that a table has side by side.
MOST_COLUMNS = 6


@dataclass(frozen=True)
class Variant:
    """Runs that differ in nothing but the seed."""

    method: str
    seeds: list[int]
    #: Settings and versions by dotted name.
    values: dict[str, str]

    @property
    def seeds_in_words(self) -> str:
        return f"seed{'s' * (len(self.seeds) > 1)} {describe_seeds(self.seeds)}"


@dataclass(frozen=True)
class Settings:
    """The settings of a group of runs."""

    variants: list[Variant]
    #: {setting: its value for each variant, None where it has none}, of the settings that vary.
    differing: dict[str, list[str | None]]
    #: {setting: the value that all runs have}
    shared: dict[str, str]

    @property
    def is_narrow(self) -> bool:
        """Tell whether a table of one column per variant fits a sheet of paper."""
        return len(self.variants) <= MOST_COLUMNS

    def list_own(self, number: int) -> dict[str, str]:
        """Return the differing settings that a variant has, the variant given by its number."""
        return {name: value for name, values in self.differing.items() if (value := values[number]) is not None}


def describe_settings(runs: Sequence[LoadedRun]) -> Settings:
    variants: dict[tuple[tuple[str, str], ...], Variant] = {}
    for run in runs:
        values = collect_settings(run)
        known = variants.setdefault(tuple(sorted(values.items())), Variant(run.record.method, [], values))
        known.seeds.append(run.record.seed)
    found = list(variants.values())
    names = dict.fromkeys(name for variant in found for name in variant.values if name != "method")
    rows = {name: [variant.values.get(name) for variant in found] for name in names}
    differing = {name: values for name, values in rows.items() if len(set(values)) > 1}
    return Settings(found, differing, {name: values[0] or "" for name, values in rows.items() if name not in differing})


def collect_settings(run: LoadedRun) -> dict[str, str]:
    """Return every setting of a run but its seed, and the versions that it ran with."""
    return flatten_settings(run.record.config) | flatten_settings(run.record.versions, "versions.")


def describe_seeds(seeds: Iterable[int]) -> str:
    """Return `0 to 4`, or `3, 7`."""
    listed = sorted(seeds)
    if len(listed) > 2 and listed == list(range(listed[0], listed[-1] + 1)):
        return f"{listed[0]} to {listed[-1]}"
    return ", ".join(map(str, listed))
