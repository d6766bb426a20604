"""The settings of runs: those that differ between them, and all of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sfao.reports.comparison import flatten_settings
from sfao.reports.runs import LoadedRun


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
class Differences:
    """{setting: its value for each variant, None where it has none}, of the settings that vary."""

    variants: list[Variant]
    rows: dict[str, list[str | None]]


def find_differences(runs: Sequence[LoadedRun]) -> Differences:
    variants: dict[tuple[tuple[str, str], ...], Variant] = {}
    for run in runs:
        values = collect_settings(run)
        known = variants.setdefault(tuple(sorted(values.items())), Variant(run.record.method, [], values))
        known.seeds.append(run.record.seed)
    found = list(variants.values())
    names = dict.fromkeys(name for variant in found for name in variant.values if name != "method")
    rows = {name: [variant.values.get(name) for variant in found] for name in names}
    return Differences(found, {name: values for name, values in rows.items() if len(set(values)) > 1})


def collect_settings(run: LoadedRun) -> dict[str, str]:
    """Return every setting of a run but its seed, and the versions that it ran with."""
    return flatten_settings(run.record.config) | flatten_settings(run.record.versions, "versions.")


def describe_seeds(seeds: Iterable[int]) -> str:
    """Return `0 to 4`, or `3, 7`."""
    listed = sorted(seeds)
    if len(listed) > 2 and listed == list(range(listed[0], listed[-1] + 1)):
        return f"{listed[0]} to {listed[-1]}"
    return ", ".join(map(str, listed))
