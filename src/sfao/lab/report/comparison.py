"""From the records of many runs to one row per method, in groups of runs that may be compared."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from sfao.lab.methods import METHODS
from sfao.lab.metrics import accuracy_when_learnt
from sfao.lab.run.config import complete_settings
from sfao.lab.run.record import Record, list_digests
from sfao.lab.run.statistics import PairedTest, Spread, paired_test, spread

#: The methods that are compared with the baselines.
OURS = ("sfao", "drift-bound")
#: It stores all data and is never ranked.
BOUND = "joint"
REFERENCE = "sgd"
#: Settings that methods are expected to share: where they differ, it is not the methods alone that are compared.
SHARED = ("model", "optimizer", "lr", "momentum", "momentum_form", "weight_decay", "batch_size", "epochs")
#: Values of a setting that are listed with their methods; more are counted.
MOST_VALUES = 5


@dataclass(frozen=True)
class Row:
    """One method over its seeds; numbers are of the runs that are done."""

    method: str
    done: int
    asked: int
    accuracy: Spread | None
    #: On each task just after it was learned, whatever was forgotten later.
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
    return Comparison([_compare(members, title) for members, title in zip(groups, name_groups(groups), strict=True)])


def _compare(records: Sequence[Record], title: str) -> Group:
    named = split_into_rows(records)
    done = {name: [record for record in own if record.status == "done"] for name, own in named.items()}
    bounds = find_bounds(named)
    baseline = _choose_baseline(named, done, bounds) or _choose_baseline(named, done, ())
    rows = [_make_row(name, own, done, baseline, name in bounds) for name, own in named.items()]
    return Group(
        title=title,
        caveat=make_caveat(records[0]),
        rows=sorted(rows, key=lambda row: (row.is_bound, _is_of(BOUND, row.method))),
        baseline=baseline,
        warnings=_collect_warnings(named),
        uneven=_describe_differences(records),
    )


# -- Groups ----------------------------------------------------------------------------------------------------------


def group_records(records: Iterable[Record]) -> list[list[Record]]:
    """Return the records of each group, in the order of the groups."""
    groups: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(_group_key(record), []).append(record)
    return [part for members in groups.values() for part in _split_by_digest(members)]


def _split_by_digest(records: list[Record]) -> list[list[Record]]:
    """Return the records on each data set; older records without a digest stay with the others if those agree."""
    if len(list_digests(records)) < 2:
        return [records]
    parts: dict[object, list[Record]] = {}
    for record in records:
        parts.setdefault(record.data.get("digest"), []).append(record)
    return list(parts.values())


def _group_key(record: Record) -> tuple[object, ...]:
    """Return a key that is equal for records whose numbers may be averaged or ranked together."""
    settings = (record.config.get(name) for name in ("tasks", "evaluate", "validation"))
    data = (record.data.get(name) for name in ("name", "train", "test", "complete", "embedded"))
    return (record.benchmark, record.scenario, *settings, _get_fraction(record), *data)


def _get_fraction(record: Record) -> float:
    fraction: float = record.config.get("fraction", 1.0)
    return fraction


def name_groups(groups: Sequence[Sequence[Record]]) -> list[str]:
    """Return the titles of groups; where two would be the same, the data make the difference and are named."""
    titles = [_make_title(records) for records in groups]
    counts = Counter(titles)
    digests = ["".join(list_digests(records)) for records in groups]
    return [
        f"{title}, data {digest}" if digest and counts[title] > 1 else title
        for title, digest in zip(titles, digests, strict=True)
    ]


def _make_title(records: Sequence[Record]) -> str:
    record, data = records[0], records[0].data
    parts = [f"{record.benchmark}, {record.scenario} scenario"]
    if record.config.get("tasks") is not None:
        parts.append(f"{record.config['tasks']} tasks")
    if data:
        # The user's own data may be anything, not only images.
        examples = "examples" if data.get("digest") and "published" not in data else "images"
        # Older records, and failed runs, do not have the number of examples that were held out.
        used = max(each.trained_on for each in records) or data["train"]
        of_all = f" of {data['train']:,}" if used != data["train"] else ""
        parts.append(f"{used:,}{of_all} training {examples} of {data['name']}")
    if record.config.get("evaluate") == "validation":
        parts.append("measured on validation images")
    return ", ".join(parts)


def make_caveat(record: Record) -> str:
    """Return what the numbers must not be taken for; empty when they are of the whole published set."""
    data = record.data
    if _get_fraction(record) < 1:
        which = f"{data['name']}, {data['train']:,} training images" if data else "the data"
        return f"On a slice of {which}: not results on all of it."
    if data.get("embedded"):
        images = data["train"] + data["test"]
        return f"On the {images:,} embedded digits: not to be read next to results on the full set."
    if data and not data.get("complete", True):
        return f"On a part of {data['name']}, {data['train']:,} training images: not results on all of it."
    if data.get("published") is False:
        return f"On files of {data['name']} that are not known to be the publisher's."
    return ""


# -- Rows ------------------------------------------------------------------------------------------------------------


def split_into_rows(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Return {row: its records}, one record per seed."""
    return {name: _keep_one_per_seed(own) for name, own in name_rows(records).items()}


def name_rows(records: Sequence[Record]) -> dict[str, list[Record]]:
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


def flatten_settings(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return {dotted name: value as text}, without the seed."""
    flat: dict[str, str] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            flat |= flatten_settings(value, f"{prefix}{name}.")
        elif prefix + name != "seed":
            flat[prefix + name] = str(value)
    return flat


def _keep_one_per_seed(records: Iterable[Record]) -> list[Record]:
    """Count a run that was done twice once, and prefer one that is done to one that failed."""
    by_seed: dict[int, Record] = {}
    for record in sorted(records, key=lambda record: record.status != "done"):
        by_seed.setdefault(record.seed, record)
    return [by_seed[seed] for seed in sorted(by_seed)]


def find_bounds(named: Mapping[str, Sequence[Record]]) -> set[str]:
    """Return the rows that are not ranked: those that store data beside others that do not, and joint always."""
    storing = {name for name, own in named.items() if stores_data(own[0])}
    return storing if len(storing) < len(named) else {name for name in storing if _is_of(BOUND, name)}


def stores_data(record: Record) -> bool:
    """Return True if examples of past tasks were kept; for older records, as their method here does."""
    if record.stores_data is not None:
        return record.stores_data
    return METHODS.is_known(record.method) and METHODS[record.method].stores_data


def _choose_baseline(
    named: Mapping[str, Sequence[Record]], done: Mapping[str, Sequence[Record]], without: Collection[str]
) -> str:
    """Return the row with the highest mean that is neither ours nor joint nor left out; complete rows first."""
    rivals = [name for name, own in done.items() if own and name not in without]
    rivals = [name for name in rivals if not any(_is_of(method, name) for method in (*OURS, BOUND))]
    # One lucky seed of a method that failed on the others is no rival while there is one that did not fail.
    complete = [name for name in rivals if len(done[name]) == len(named[name])]
    means = {name: fmean(_by_seed(done[name], "average_accuracy").values()) for name in complete or rivals}
    return max(means, key=lambda name: means[name], default="")


def _is_of(method: str, row: str) -> bool:
    return row.split(" ")[0] == method


def _make_row(
    name: str, own: Sequence[Record], done: Mapping[str, Sequence[Record]], baseline: str, is_bound: bool
) -> Row:
    ended = done[name]
    tested = bool(ended and baseline and name != baseline and not _is_of(BOUND, name))
    guarded = [record for record in ended if record.config.get("guard")]
    statuses = Counter(record.status for record in own)
    return Row(
        method=name,
        done=len(ended),
        asked=len(own),
        accuracy=_spread([record.metrics["average_accuracy"] for record in ended]),
        learnt=_spread([accuracy_when_learnt(one.accuracy_matrix) for one in ended if one.accuracy_matrix]),
        forgetting=_spread([record.metrics["average_forgetting"] for record in ended]),
        memory_bytes=fmean(record.memory_bytes for record in ended) if ended else None,
        seconds=fmean(record.seconds for record in ended) if ended else None,
        times_sgd=_compare_times(ended, done.get(REFERENCE, ())),
        test=compare_accuracies(ended, done[baseline], baseline) if tested else None,
        trouble=", ".join(f"{statuses[status]} {status}" for status in ("failed", "diverged") if statuses[status]),
        rollbacks=fmean(len(record.rollbacks) for record in guarded) if guarded else None,
        stores_data=stores_data(own[0]),
        is_bound=is_bound,
    )


def _spread(values: Sequence[float]) -> Spread | None:
    return spread(values) if values else None


def _by_seed(records: Iterable[Record], metric: str) -> dict[int, float]:
    return {record.seed: record.metrics[metric] for record in records}


def compare_accuracies(ours: Iterable[Record], theirs: Iterable[Record], against: str) -> PairedTest:
    """Test the average accuracies of runs that are done against others, on the seeds that both have."""
    return paired_test(_by_seed(ours, "average_accuracy"), _by_seed(theirs, "average_accuracy"), against)


def _compare_times(records: Iterable[Record], reference: Iterable[Record]) -> float | None:
    theirs = {record.seed: record.seconds for record in reference}
    pairs = [(record.seconds, theirs[record.seed]) for record in records if record.seed in theirs]
    total = sum(second for _, second in pairs)
    return sum(first for first, _ in pairs) / total if total > 0 else None


def list_best(group: Group, most: int = 3) -> list[str]:
    """Return the rows with the highest mean accuracy that are no bounds."""
    ranked = [(row.accuracy.mean, row.method) for row in group.rows if row.accuracy and not row.is_bound]
    return [name for _, name in sorted(ranked, key=lambda pair: -pair[0])[:most]]


# -- Warnings --------------------------------------------------------------------------------------------------------


def _collect_warnings(named: Mapping[str, Sequence[Record]]) -> list[RunWarning]:
    """Return every warning once, with the runs that it concerns."""
    found: dict[str, dict[str, list[int]]] = {}
    for name, records in named.items():
        for record in records:
            for text in record.warnings:
                found.setdefault(text, {}).setdefault(name, []).append(record.seed)
    return [RunWarning(text, runs) for text, runs in found.items()]


def _describe_differences(records: Iterable[Record]) -> str:
    """`methods differ in epochs: 10 (ewc), 2 (sgd, sfao)`; empty when they share what they should."""
    found: dict[str, dict[str, list[str]]] = {}
    for record in records:
        for name, value in flatten_settings(complete_settings(record.config)).items():
            if name.partition(".")[0] in SHARED:
                methods = found.setdefault(name, {}).setdefault(value, [])
                methods += [record.method] if record.method not in methods else []
    differing = [f"{name}: {_list_values(methods)}" for name, methods in found.items() if not _are_alike(methods)]
    return f"methods differ in {'; '.join(differing)}" if differing else ""


def _are_alike(methods: Mapping[str, Sequence[str]]) -> bool:
    """Return True if all methods have all values, as in a sweep, where the names of the rows tell them apart."""
    everyone = set().union(*methods.values())
    return all(set(names) == everyone for names in methods.values())


def _list_values(methods: Mapping[str, Sequence[str]]) -> str:
    if len(methods) > MOST_VALUES:
        return f"{len(methods)} values"
    return ", ".join(f"{value} ({', '.join(names)})" for value, names in methods.items())
