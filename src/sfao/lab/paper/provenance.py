"""The origin of the paper's rows, and the settings that produce them again."""

from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from sfao.lab.safe_io import parse_yaml


@dataclass(frozen=True)
class Provenance:
    """The origin of a row in one sentence, and its changes to the released preset (dotted names)."""

    source: str
    settings: dict[str, Any] = field(default_factory=dict)


def provenance(table: int, row: str) -> Provenance:
    return Provenance(**_read()[table][row])


@cache
def _read() -> dict[int, dict[str, dict[str, Any]]]:
    content: dict[int, dict[str, dict[str, Any]]] = parse_yaml(
        (files(__name__.rpartition(".")[0]) / "provenance.yaml").read_text()
    )
    return content
