"""Candidates: settings that were tried, what became of them, and which are best."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from sfao.lab.metrics import accuracy_when_learnt
from sfao.lab.run.record import Record
from sfao.lab.run.statistics import Spread, spread


@dataclass(frozen=True)
class Candidate:
    """Settings that were tried, with the records of their runs, one per seed."""

    number: int
    settings: dict[str, Any]
    records: list[Record]
    #: Mean accuracy over the seeds; None unless all runs are done.
    score: float | None
    #: The reason why there is no score; empty when there is one.
    error: str = ""

    @property
    def accuracy(self) -> Spread | None:
        return self._spread(lambda record: record.metrics["average_accuracy"])

    @property
    def forgetting(self) -> Spread | None:
        return self._spread(lambda record: record.metrics["average_forgetting"])

    @property
    def learning(self) -> Spread | None:
        """The accuracy on each task just after it was learnt."""
        return self._spread(lambda record: accuracy_when_learnt(record.accuracy_matrix))

    def _spread(self, value: Callable[[Record], float]) -> Spread | None:
        done = [record for record in self.records if record.status == "done"]
        return spread([value(record) for record in done]) if done else None

    def as_json(self) -> dict[str, Any]:
        """Return plain containers with numbers in full precision."""
        spreads = {name: getattr(self, name) for name in ("accuracy", "forgetting", "learning")}
        return {
            "number": self.number,
            "settings": self.settings,
            "score": self.score,
            "error": self.error,
            **{name: None if value is None else asdict(value) for name, value in spreads.items()},
        }


def score_records(records: Sequence[Record], asked: int) -> tuple[float | None, str]:
    """Return the mean accuracy if all runs are done, else None, and the reason why there is none."""
    troubled = [record for record in records if record.status != "done"]
    if troubled:
        first = troubled[0]
        return None, f"seed {first.seed} {first.status}: {first.error}"
    if len(records) < asked:
        return None, f"{len(records)} of {asked} runs have ended"
    return fmean(record.metrics["average_accuracy"] for record in records), ""


def choose_best(candidates: Sequence[Candidate]) -> Candidate | None:
    """Return the candidate with the highest score, the first of equals; None when none has a score."""
    best: Candidate | None = None
    for candidate in candidates:
        if candidate.score is not None and (best is None or best.score is None or candidate.score > best.score):
            best = candidate
    return best
