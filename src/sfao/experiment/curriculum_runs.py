"""The folder of a curriculum: the statistics of its pairs, and one comparison for each order of the tasks."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sfao.data.dataset import Dataset
from sfao.experiment.config import RunConfig, complete_settings
from sfao.experiment.curriculum import Curriculum, propose_curriculum
from sfao.experiment.errors import ConfigError, FolderError
from sfao.experiment.execute import set_up
from sfao.experiment.files import write_json
from sfao.experiment.interference import PairStatistics, probe_pairs

#: Kept, so that the same command proposes the same order at once.
PAIRS = "pairs.json"


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse an order: the command tries several."""
    for name in settings:
        if name.rpartition(":")[2] in ("order", "task_order"):
            raise ConfigError(f"`{name}` must be left to the command, which tries several, got {settings[name]!r}")


def find_curriculum(config: RunConfig, dataset: Dataset, out: Path, tell: Callable[[str], None]) -> Curriculum:
    """Return the curriculum of a benchmark, from the statistics in the folder, or from new ones that are left there."""
    if config.order is not None:
        raise ConfigError(f"`order` must be left to the command, which tries several, got {config.order!r}")
    pairs = _read_pairs(config, out)
    if pairs is None:
        pairs = probe_pairs(config, dataset, tell)
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / PAIRS, {"config": config.model_dump(), "pairs": [asdict(pair) for pair in pairs]})
    return propose_curriculum([task.name for task in set_up(config, dataset, out).stream], pairs)


def _read_pairs(config: RunConfig, out: Path) -> list[PairStatistics] | None:
    """Return the statistics that an earlier call left; None when the folder is new."""
    if out.exists() and not out.is_dir():
        raise FolderError(f"`out` must be a folder, got the file {out}")
    if not out.exists() or not any(out.iterdir()):
        return None
    if not (out / PAIRS).exists():
        raise FolderError(f"`out` must be new or hold a curriculum, but {out} holds other files")
    try:
        held = json.loads((out / PAIRS).read_text())
        pairs = [PairStatistics(**pair) for pair in held["pairs"]]
    except (ValueError, TypeError, KeyError) as error:
        raise FolderError(f"{out / PAIRS} must be of a curriculum, but it is damaged: {error}") from error
    # A setting that did not exist yet had the value that is its default now.
    settings, wanted = complete_settings(held["config"]), config.model_dump()
    differing = [name for name in wanted if settings.get(name) != wanted[name]]
    if differing:
        name = differing[0]
        raise FolderError(
            f"`out` must be new or hold this curriculum, but in {out} "
            f"`{name}` is {settings.get(name)!r}, here {wanted[name]!r}"
        )
    return pairs


def list_different_orders(curriculum: Curriculum) -> dict[str, list[int] | None]:
    """Return {name: order} without those that equal an earlier one; None is the benchmark's own."""
    named: dict[tuple[int, ...], str] = {}
    for name, order in curriculum.orders.items():
        named.setdefault(tuple(order), name)
    own = list(range(len(curriculum.tasks)))
    return {name: None if list(order) == own else list(order) for order, name in named.items()}
