"""From the records of many runs to one row per method, in groups of runs that may be compared."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from sfao.lab.methods import METHODS
from sfao.lab.metrics import accuracy_when_learnt
from sfao.lab.report.comparable import group_records, make_caveat, name_groups
from sfao.lab.run.config import complete_settings
from sfao.lab.run.record import Record
from sfao.lab.run.statistics import PairedTest, Spread, paired_test, spread

#: The methods that are compared with the baselines.
OURS = ("sfao", "drift-bound")
#: It stores all data and is never ranked.
BOUND = "joint"
REFERENCE = "sgd"
#: Settings that methods are expected to share: where they differ, it is not the methods alone that are compared.
SHARED = ("model", "lr", "momentum", "momentum_form", "weight_decay", "batch_size", "epochs")
#: Values of a setting that are listed with their methods; more are counted.
MOST_VALUES = 5


@dataclass(frozen=True)
class Row:
    """One method over its seeds; numbers are of the runs that are done."""

    method: str
    done: int
    asked: int
    accuracy: Spread | None
    #: On each task just after it was learnt, whatever was forgotten later.
    learnt: Spread | None
    forgetting: Spread | None
    memory_bytes: float | None
    seconds: float | None
    #: Seconds as a multiple of sgd's, over the seeds that both have done.
    times_sgd: float | None
    #: Against the baseline; None for the baseline itself and for joint.
    test: PairedTest | None
    #: The number of runs that did not end well, in words.
    trouble: str
    #: Rollbacks of a run, on average; None where there was no guard.
    rollbacks: float | None = None
    #: True if examples of past tasks are kept, which are part of the bytes held.
    stores_data: bool = False
    #: True if it stores data beside methods that do not: it is shown, and never the best.
    is_bound: bool = False

    @property
    def is_complete(self) -> bool:
        return self.done == self.asked > 0


@dataclass(frozen=True)
class RunWarning:
    text: str
    #: {row: seeds}
    runs: dict[str, list[int]]


@dataclass(frozen=True)
class Group:
    """Rows that may be read against each other: same benchmark, scenario, data and way to evaluate."""

    title: str
    #: What the numbers must not be taken for; empty when they are of the whole set.
    caveat: str
    rows: list[Row]
    #: The best row by mean accuracy that is not ours, nor a bound where there is another, nor joint; empty for none.
    baseline: str
    warnings: list[RunWarning]
    #: In which settings the methods differ beside their own options, in a line; empty when in none.
    uneven: str = ""


@dataclass(frozen=True)
class Comparison:
    groups: list[Group]

    @property
    def notice(self) -> str:
        """The reason why the groups are apart; empty when there is only one."""
        if len(self.groups) < 2:
            return ""
        return (
            "Results of different benchmarks, scenarios or data are shown apart and must not be compared: "
            + "; ".join(group.title for group in self.groups)
        )


def compare_records(records: Iterable[Record]) -> Comparison:
    """Return groups and rows in the order in which their first records come."""
    groups = group_records(records)
    return Comparison([_group(members, title) for members, title in zip(groups, name_groups(groups), strict=True)])


def _group(records: list[Record], title: str) -> Group:
    named = split_into_rows(records)
    done = {name: [record for record in own if record.status == "done"] for name, own in named.items()}
    bounds = find_bounds(named)
    baseline = _choose_among(named, done, bounds) or _choose_among(named, done, [])
    rows = [_row(name, own, done, baseline, name in bounds) for name, own in named.items()]
    return Group(
        title=title,
        caveat=make_caveat(records[0]),
        rows=sorted(rows, key=lambda row: (row.is_bound, _is_of(BOUND, row.method))),
        baseline=baseline,
        warnings=_warnings(named),
        uneven=_describe_differences(records),
    )


def find_bounds(named: Mapping[str, Sequence[Record]]) -> set[str]:
    """Return the rows that are not ranked: those that store data beside others that do not, and joint always."""
    storing = {name for name, own in named.items() if stores_data(own[0])}
    return storing if len(storing) < len(named) else {name for name in storing if _is_of(BOUND, name)}


def stores_data(record: Record) -> bool:
    """Tell whether examples of past tasks were kept; of older records, by what is known of their method here."""
    if record.stores_data is not None:
        return record.stores_data
    return METHODS.is_known(record.method) and METHODS[record.method].stores_data


def _choose_among(named: dict[str, list[Record]], done: dict[str, list[Record]], without: Collection[str]) -> str:
    """Return the row that others are tested against, if there is one beside those left out."""
    accuracies = {name: _by_seed(own, "average_accuracy") for name, own in done.items() if own and name not in without}
    whole = {name: values for name, values in accuracies.items() if len(values) == len(named[name])}
    # One lucky seed of a method that failed on the others is no rival while there is one that did not fail.
    return choose_baseline(whole) or choose_baseline(accuracies)


def list_best(group: Group, most: int = 3) -> list[str]:
    """Return the rows with the highest mean accuracy that are no bounds: those that a selection must not leave out."""
    ranked = [(row.accuracy.mean, row.method) for row in group.rows if row.accuracy and not row.is_bound]
    return [name for _, name in sorted(ranked, key=lambda pair: -pair[0])[:most]]


def choose_baseline(accuracies: dict[str, dict[int, float]]) -> str:
    """Return the name with the highest mean, the first of equals; "" when there is none but ours and joint."""
    means = {
        name: fmean(by_seed.values())
        for name, by_seed in accuracies.items()
        if not any(_is_of(method, name) for method in (*OURS, BOUND))
    }
    return max(means, key=lambda name: means[name], default="")


def _is_of(method: str, row: str) -> bool:
    return row.split(" ")[0] == method


def split_into_rows(records: list[Record]) -> dict[str, list[Record]]:
    """Return {row: its records}, one record per seed."""
    return {name: _keep_one_per_seed(own) for name, own in name_rows(records).items()}


def name_rows(records: list[Record]) -> dict[str, list[Record]]:
    """Return {row: all its records}: one row for each choice of settings of a method, named by what differs."""
    methods: dict[str, list[Record]] = {}
    for record in records:
        methods.setdefault(record.method, []).append(record)
    named: dict[str, list[Record]] = {}
    for method, own in methods.items():
        settings = [flatten_settings(complete_settings(record.config)) for record in own]
        varying = sorted(name for name in set().union(*settings) if len({s.get(name) for s in settings}) > 1)
        for record, values in zip(own, settings, strict=True):
            label = ", ".join(f"{name}={values[name]}" for name in varying if name in values)
            named.setdefault(f"{method} ({label})" if label else method, []).append(record)
    return named


def flatten_settings(config: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Return {dotted name: value as text}, without the seed."""
    flat: dict[str, str] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            flat |= flatten_settings(value, f"{prefix}{name}.")
        elif prefix + name != "seed":
            flat[prefix + name] = str(value)
    return flat


def _keep_one_per_seed(records: list[Record]) -> list[Record]:
    """Count a run that was done twice once, and prefer one that is done to one that failed."""
    by_seed: dict[int, Record] = {}
    for record in sorted(records, key=lambda record: record.status != "done"):
        by_seed.setdefault(record.seed, record)
    return [by_seed[seed] for seed in sorted(by_seed)]


def _row(name: str, own: list[Record], done: dict[str, list[Record]], baseline: str, is_bound: bool) -> Row:
    ended = done[name]
    tested = bool(ended and baseline and name != baseline and not _is_of(BOUND, name))
    return Row(
        method=name,
        done=len(ended),
        asked=len(own),
        accuracy=_spread(ended, "average_accuracy"),
        learnt=_spread_learnt(ended),
        forgetting=_spread(ended, "average_forgetting"),
        memory_bytes=fmean(record.memory_bytes for record in ended) if ended else None,
        seconds=fmean(record.seconds for record in ended) if ended else None,
        times_sgd=_times(ended, done.get(REFERENCE, [])),
        test=_test(ended, done[baseline], baseline) if tested else None,
        trouble=_trouble(own),
        rollbacks=_mean_rollbacks(ended),
        stores_data=stores_data(own[0]),
        is_bound=is_bound,
    )


def _mean_rollbacks(records: list[Record]) -> float | None:
    guarded = [record for record in records if record.config.get("guard")]
    return fmean(len(record.rollbacks) for record in guarded) if guarded else None


def _spread(records: list[Record], metric: str) -> Spread | None:
    return spread([record.metrics[metric] for record in records]) if records else None


def _spread_learnt(records: list[Record]) -> Spread | None:
    values = [accuracy_when_learnt(record.accuracy_matrix) for record in records if record.accuracy_matrix]
    return spread(values) if values else None


def _by_seed(records: list[Record], metric: str) -> dict[int, float]:
    return {record.seed: record.metrics[metric] for record in records}


def _test(ours: list[Record], theirs: list[Record], against: str) -> PairedTest:
    return paired_test(_by_seed(ours, "average_accuracy"), _by_seed(theirs, "average_accuracy"), against)


def _times(records: list[Record], reference: list[Record]) -> float | None:
    theirs = {record.seed: record.seconds for record in reference}
    pairs = [(record.seconds, theirs[record.seed]) for record in records if record.seed in theirs]
    total = sum(second for _, second in pairs)
    return sum(first for first, _ in pairs) / total if total > 0 else None


def _trouble(records: Sequence[Record]) -> str:
    counts = {status: sum(record.status == status for record in records) for status in ("failed", "diverged")}
    return ", ".join(f"{count} {status}" for status, count in counts.items() if count)


def _warnings(named: dict[str, list[Record]]) -> list[RunWarning]:
    """Return every warning once, with the runs that it concerns."""
    found: dict[str, dict[str, list[int]]] = {}
    for name, records in named.items():
        for record in records:
            for text in record.warnings:
                found.setdefault(text, {}).setdefault(name, []).append(record.seed)
    return [RunWarning(text, runs) for text, runs in found.items()]


def _describe_differences(records: list[Record]) -> str:
    """`methods differ in epochs: 10 (ewc), 2 (sgd, sfao)`; empty when they differ in nothing that should be shared."""
    found: dict[str, dict[str, list[str]]] = {}
    for record in records:
        for name, value in flatten_settings(complete_settings(record.config)).items():
            if name.partition(".")[0] in SHARED:
                methods = found.setdefault(name, {}).setdefault(value, [])
                methods += [record.method] if record.method not in methods else []
    differing = [f"{name}: {_values(methods)}" for name, methods in found.items() if not _are_alike(methods)]
    return f"methods differ in {'; '.join(differing)}" if differing else ""


def _are_alike(methods: dict[str, list[str]]) -> bool:
    """Tell whether all methods have all values, as in a sweep, where the names of the rows tell them apart."""
    everyone = set().union(*methods.values())
    return all(set(names) == everyone for names in methods.values())


def _values(methods: dict[str, list[str]]) -> str:
    if len(methods) > MOST_VALUES:
        return f"{len(methods)} values"
    return ", ".join(f"{value} ({', '.join(names)})" for value, names in methods.items())
