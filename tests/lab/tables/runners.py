"""A small table with everything a renderer must show: a best cell, trouble, a row apart, letters with a meaning."""

from dataclasses import dataclass

from sfao.lab.report.tables import Column, Table


@dataclass(frozen=True)
class Runner:
    name: str
    seconds: float | None
    remark: str = ""
    is_guest: bool = False


RUNNERS = [Runner("ann", 9.5), Runner("bob", 11.25, "fell"), Runner("eve", None), Runner("car", 2.0, is_guest=True)]

NAME = Column[Runner]("name", lambda runner: runner.name)
SECONDS = Column[Runner](
    "seconds",
    lambda runner: "" if runner.seconds is None else f"{runner.seconds:.1f}",
    lambda runner: runner.seconds,
    is_best=lambda runner: runner.name == "ann",
    align="right",
)
REMARK = Column[Runner]("remark", lambda runner: runner.remark)


def race(rows=RUNNERS, columns=(NAME, SECONDS, REMARK), title="A race", notes=("Dry track.",)):
    return Table(title, columns, rows, notes, is_apart=lambda runner: runner.is_guest)
