"""From the records of many runs to one row per method, in groups of runs that may be compared."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from sfao.lab.methods import METHODS
from sfao.lab.metrics import PairedTest, Spread, accuracy_when_learnt, paired_test, spread
from sfao.lab.run.config import complete_settings
from sfao.lab.run.record import Record, list_digests

#: The methods that are compared with the baselines.
OURS = ("sfao", "drift-bound")
#: It stores all data and is never ranked.
BOUND = "joint"
REFERENCE = "sgd"
#: Settings that methods should share: where they differ, more than the methods is compared.
SHARED = ("model", "optimizer", "lr", "momentum", "momentum_form", "weight_decay", "batch_size", "epochs")
#: Values of a setting that are listed with their methods; more are counted.
MOST_VALUES = 5


@dataclass(frozen=True)
class Row:
    """One method over its seeds; the numbers are those of the runs that are done."""

    method: str
    done: int
    asked: int
    accuracy: Spread | None
    #: Accuracy on each task just after it was learned.
    learned: Spread | None
    forgetting: Spread | None
    memory_bytes: float | None
    seconds: float | None
    #: Seconds as a multiple of sgd's, over the seeds that both have done.
    times_sgd: float | None
    #: Against the baseline; None for the baseline itself and for joint.
    test: PairedTest | None
    #: How many runs failed or diverged, such as `1 diverged`.
    failures: str
    #: Rollbacks of a run, on average; None without a guard.
    rollbacks: float | None = None
    #: True if examples of past tasks are kept; they are part of the bytes held.
    stores_data: bool = False
    #: True if it stores data beside methods that don't: it is shown, and never the best.
    is_bound: bool = False
    #: One per seed.
    records: Sequence[Record] = field(default=(), repr=False)

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
    """Rows that may be compared: same benchmark, scenario, data and evaluation."""

    title: str
    #: A warning where the numbers are not of the whole published data set; else empty.
    caveat: str
    rows: list[Row]
    #: The most accurate row that is neither ours nor a bound; a bound where there is no other; empty without any.
    baseline: str
    warnings: list[RunWarning]
    #: Settings beside their own options in which the methods differ; else empty.
    setting_mismatch: str = ""


@dataclass(frozen=True)
class Comparison:
    groups: list[Group]

    @property
    def notice(self) -> str:
        """Return why there are several groups; empty for one."""
        if len(self.groups) < 2:
            return ""
        titles = "; ".join(group.title for group in self.groups)
        return f"Results of different benchmarks, scenarios or data are shown apart and must not be compared: {titles}"


def compare_records(records: Iterable[Record]) -> Comparison:
    """Return groups and rows in the order in which their first records come."""
    groups = group_records(records)
    return Comparison([_compare(own, title) for own, title in zip(groups, _name_groups(groups), strict=True)])


def _compare(records: Sequence[Record], title: str) -> Group:
    by_row = _split_into_rows(records)
    storing = {name for name, own in by_row.items() if any(map(_stores_data, own))}
    if len(storing) == len(by_row):
        storing = {name for name in storing if _is_of(BOUND, name)}
    done = {name: [record for record in own if record.status == "done"] for name, own in by_row.items()}
    rivals = [name for name in done if done[name] and not any(_is_of(method, name) for method in (*OURS, BOUND))]
    # Complete rows first, those that store data last.
    rank = {name: (name not in storing, len(done[name]) == len(by_row[name]), _mean(done[name])) for name in rivals}
    baseline = max(rivals, key=lambda name: rank[name], default="")
    rows = [_make_row(name, own, done, baseline, name in storing) for name, own in by_row.items()]
    return Group(
        title=title,
        caveat=_make_caveat(records[0]),
        rows=sorted(rows, key=lambda row: (row.is_bound, _is_of(BOUND, row.method))),
        baseline=baseline,
        warnings=_collect_warnings(by_row),
        setting_mismatch=_describe_mismatch(records),
    )


# -- Groups ----------------------------------------------------------------------------------------------------------


def group_records(records: Iterable[Record]) -> list[list[Record]]:
    """Return the records of each group, in the order of the groups.

    Data sets with different digests are different groups; records without a digest join the others if those agree.
    """
    groups: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(_group_key(record), []).append(record)
    found: list[list[Record]] = []
    for own in groups.values():
        by_digest: dict[object, list[Record]] = {}
        for record in own:
            by_digest.setdefault(record.data.get("digest"), []).append(record)
        found += by_digest.values() if len(list_digests(own)) > 1 else [own]
    return found


def _group_key(record: Record) -> tuple[object, ...]:
    """Return a key that is equal for records whose numbers may be averaged or ranked together."""
    settings = (record.config.get(name) for name in ("tasks", "evaluate", "validation"))
    data = (record.data.get(name) for name in ("name", "train", "test", "complete", "embedded"))
    return (record.benchmark, record.scenario, *settings, record.config.get("fraction", 1.0), *data)


def _name_groups(groups: Sequence[Sequence[Record]]) -> list[str]:
    """Return the titles of groups; where two are equal, the digest of the data is added."""
    titles = [_make_title(records) for records in groups]
    digests = ["".join(list_digests(records)) for records in groups]
    return [
        f"{title}, data {digest}" if digest and titles.count(title) > 1 else title
        for title, digest in zip(titles, digests, strict=True)
    ]


def _make_title(records: Sequence[Record]) -> str:
    record, data = records[0], records[0].data
    parts = [f"{record.benchmark}, {record.scenario} scenario"]
    if record.config.get("tasks") is not None:
        parts.append(f"{record.config['tasks']} tasks")
    if data:
        # Data of the user's own may be anything, not only images.
        examples = "examples" if data.get("digest") and "published" not in data else "images"
        used = max(each.trained_on for each in records) or data["train"]  # failed runs have learned from none
        of_all = f" of {data['train']:,}" if used != data["train"] else ""
        parts.append(f"{used:,}{of_all} training {examples} of {data['name']}")
    if record.config.get("evaluate") == "validation":
        parts.append("measured on validation images")
    return ", ".join(parts)


def _make_caveat(record: Record) -> str:
    data = record.data
    if data.get("embedded") and record.config.get("fraction", 1.0) == 1:
        images = data["train"] + data["test"]
        return f"On the {images:,} embedded digits: not to be read next to results on the full set."
    if record.config.get("fraction", 1.0) < 1 or not data.get("complete", True):
        which = f"{data['name']}, {data['train']:,} training images" if data else "the data"
        return f"On a part of {which}: not results on all of it."
    if data.get("published") is False:
        return f"On files of {data['name']} that are not known to be the publisher's."
    return ""


# -- Rows ------------------------------------------------------------------------------------------------------------


def _split_into_rows(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Return {row: its records, one per seed}, one row for each choice of settings of a method, named by what differs.

    Of a run that was done twice, one that ended well counts.
    """
    methods: dict[str, list[Record]] = {}
    for record in records:
        methods.setdefault(record.method, []).append(record)
    rows: dict[str, dict[int, Record]] = {}
    for method, own in methods.items():
        settings = [flatten_settings(complete_settings(record.config)) for record in own]
        varying = sorted(name for name in set().union(*settings) if len({s.get(name) for s in settings}) > 1)
        for record, values in zip(own, settings, strict=True):
            label = ", ".join(f"{name}={values[name]}" for name in varying if name in values)
            row = rows.setdefault(f"{method} ({label})" if label else method, {})
            if row.setdefault(record.seed, record).status != "done":
                row[record.seed] = record
    return {name: [row[seed] for seed in sorted(row)] for name, row in rows.items()}


def flatten_settings(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return {dotted name: value as text}, without the seed."""
    flat: dict[str, str] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            flat |= flatten_settings(value, f"{prefix}{name}.")
        elif prefix + name != "seed":
            flat[prefix + name] = str(value)
    return flat


def _stores_data(record: Record) -> bool:
    """Return True if examples of past tasks were kept; where a record doesn't say, its method does."""
    if record.stores_data is None:
        return METHODS.is_known(record.method) and METHODS[record.method].stores_data
    return record.stores_data


def _is_of(method: str, row: str) -> bool:
    return row.split(" ")[0] == method


def _make_row(
    name: str, own: Sequence[Record], done: Mapping[str, Sequence[Record]], baseline: str, is_bound: bool
) -> Row:
    ended = done[name]
    is_tested = ended and baseline and name != baseline and not _is_of(BOUND, name)
    guarded = [record for record in ended if record.config.get("guard")]
    statuses = Counter(record.status for record in own)
    return Row(
        method=name,
        done=len(ended),
        asked=len(own),
        accuracy=_spread(record.metrics["average_accuracy"] for record in ended),
        learned=_spread(accuracy_when_learnt(record.accuracy_matrix) for record in ended),
        forgetting=_spread(record.metrics["average_forgetting"] for record in ended),
        memory_bytes=fmean(record.memory_bytes for record in ended) if ended else None,
        seconds=fmean(record.seconds for record in ended) if ended else None,
        times_sgd=_compare_times(ended, done.get(REFERENCE, ())),
        test=compare_accuracies(ended, done[baseline], baseline) if is_tested else None,
        failures=", ".join(f"{statuses[status]} {status}" for status in ("failed", "diverged") if statuses[status]),
        rollbacks=fmean(len(record.rollbacks) for record in guarded) if guarded else None,
        stores_data=any(map(_stores_data, own)),
        is_bound=is_bound,
        records=own,
    )


def _spread(values: Iterable[float]) -> Spread | None:
    found = list(values)
    return spread(found) if found else None


def _mean(records: Iterable[Record]) -> float:
    return fmean(record.metrics["average_accuracy"] for record in records)


def compare_accuracies(ours: Iterable[Record], theirs: Iterable[Record], against: str) -> PairedTest:
    """Test the average accuracies of runs that are done against others, on the seeds that both have."""
    first, second = (
        {record.seed: record.metrics["average_accuracy"] for record in own if record.status == "done"}
        for own in (ours, theirs)
    )
    return paired_test(first, second, against)


def _compare_times(records: Iterable[Record], reference: Iterable[Record]) -> float | None:
    theirs = {record.seed: record.seconds for record in reference}
    pairs = [(record.seconds, theirs[record.seed]) for record in records if record.seed in theirs]
    total = sum(second for _, second in pairs)
    return sum(first for first, _ in pairs) / total if total > 0 else None


# -- Warnings --------------------------------------------------------------------------------------------------------


def _collect_warnings(by_row: Mapping[str, Sequence[Record]]) -> list[RunWarning]:
    """Return every warning once, with the runs that gave it."""
    found: dict[str, dict[str, list[int]]] = {}
    for name, records in by_row.items():
        for record in records:
            for text in record.warnings:
                found.setdefault(text, {}).setdefault(name, []).append(record.seed)
    return [RunWarning(text, runs) for text, runs in found.items()]


def _describe_mismatch(records: Iterable[Record]) -> str:
    """Return `methods differ in epochs: 10 (ewc), 2 (sgd, sfao)`.

    A setting of which all methods have all values, as in a sweep, is no difference: the names of the rows tell it.
    """
    found: dict[str, dict[str, dict[str, None]]] = {}
    for record in records:
        for name, value in flatten_settings(complete_settings(record.config)).items():
            if name.partition(".")[0] in SHARED:
                found.setdefault(name, {}).setdefault(value, {})[record.method] = None
    lines = []
    for name, values in found.items():
        everyone = set().union(*values.values())
        if any(set(methods) != everyone for methods in values.values()):
            listed = ", ".join(f"{value} ({', '.join(methods)})" for value, methods in values.items())
            lines.append(f"{name}: {listed if len(values) <= MOST_VALUES else f'{len(values)} values'}")
    return f"methods differ in {'; '.join(lines)}" if lines else ""
