"""Groups of records that may be read against each other, their titles, and what they must not be taken for."""

from collections import Counter
from collections.abc import Iterable, Sequence

from sfao.lab.run.record import Record, list_digests


def group_records(records: Iterable[Record]) -> list[list[Record]]:
    """Return the records of each group, in the order of the groups."""
    groups: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(_group_key(record), []).append(record)
    return [part for members in groups.values() for part in _split_by_digest(members)]


def _split_by_digest(records: list[Record]) -> list[list[Record]]:
    """Return the records on each data; those from before, which have no digest, go with the others if all have one."""
    if len(list_digests(records)) < 2:
        return [records]
    parts: dict[object, list[Record]] = {}
    for record in records:
        parts.setdefault(record.data.get("digest"), []).append(record)
    return list(parts.values())


def _group_key(record: Record) -> tuple[object, ...]:
    """Return a key that is equal for records whose numbers may be averaged or ranked together."""
    data, config = record.data, record.config
    what = (
        record.benchmark,
        record.scenario,
        *map(config.get, ("tasks", "evaluate", "validation")),
        _get_fraction(record),
    )
    return what + tuple(data.get(name) for name in ("name", "train", "test", "complete", "embedded"))


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
        # What one's own data are is not known; nobody published them.
        examples = "examples" if data.get("digest") and "published" not in data else "images"
        # Records of older versions, and of runs that failed, do not tell what was held out.
        learnt = max(each.trained_on for each in records) or data["train"]
        of_all = f" of {data['train']:,}" if learnt != data["train"] else ""
        parts.append(f"{learnt:,}{of_all} training {examples} of {data['name']}")
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
