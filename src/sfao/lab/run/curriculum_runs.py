"""The folder of a curriculum: the statistics of its pairs, and one comparison for each order of the tasks."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import permutations
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sfao.lab.console import quote
from sfao.lab.data.dataset import Dataset
from sfao.lab.run.config import RunConfig, complete_settings
from sfao.lab.run.curriculum import Curriculum, propose_curriculum
from sfao.lab.run.errors import ConfigError, FolderError
from sfao.lab.run.execute import set_up
from sfao.lab.run.files import write_json
from sfao.lab.run.interference import PairStatistics, probe_pairs
from sfao.lab.run.seal import seal, unseal
from sfao.lab.safe_io import MAX_JSON, InputError, parse_json, read_file

_PAIRS = TypeAdapter(list[PairStatistics])
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
        write_json(out / PAIRS, seal({"config": config.model_dump(), "pairs": [asdict(pair) for pair in pairs]}))
    names = [task.name for task in set_up(config, dataset, out).stream]
    _check_pairs(pairs, len(names), out)
    return propose_curriculum(names, pairs)


def _read_pairs(config: RunConfig, out: Path) -> list[PairStatistics] | None:
    """Return the statistics that an earlier call left; None when the folder is new."""
    if out.exists() and not out.is_dir():
        raise FolderError(f"`out` must be a folder, got the file {out}")
    if not out.exists() or not any(out.iterdir()):
        return None
    if not (out / PAIRS).exists():
        raise FolderError(f"`out` must be new or hold a curriculum, but {out} holds other files")
    try:
        held, pairs = _split_file(unseal(parse_json(read_file(out / PAIRS, MAX_JSON))))
    except ValidationError as error:
        first = error.errors()[0]
        said = f"`{'.'.join(map(str, ('pairs', *first['loc'])))}`: {first['msg']}"
        raise _make_error(out, said) from error
    except ValueError as error:
        raise _make_error(out, error) from error
    # A setting that did not exist yet had the value that is its default now.
    settings, wanted = complete_settings(held), config.model_dump()
    differing = [name for name in wanted if settings.get(name) != wanted[name]]
    if differing:
        name = differing[0]
        raise FolderError(
            f"`out` must be new or hold this curriculum, but in {out} "
            f"`{name}` is {quote(settings.get(name))}, here {wanted[name]!r}"
        )
    return pairs


def _make_error(out: Path, why: object) -> FolderError:
    return FolderError(
        f"{out / PAIRS} must be of a curriculum, but it is damaged: {why}; "
        "put a copy in its place, or take a new folder"
    )


def _split_file(content: Any) -> tuple[dict[str, Any], list[PairStatistics]]:
    """Return the settings and the statistics."""
    if not isinstance(content, dict) or not isinstance(content.get("config"), dict):
        raise InputError("`config` must hold settings, got none")
    return content["config"], _PAIRS.validate_python(content.get("pairs"))


def _check_pairs(pairs: list[PairStatistics], tasks: int, out: Path) -> None:
    """Refuse statistics that are not of every ordered pair of tasks."""
    found = sorted((pair.first, pair.second) for pair in pairs)
    if found != sorted(permutations(range(tasks), 2)):
        raise _make_error(out, f"`pairs` are not of {tasks} tasks")


def list_different_orders(curriculum: Curriculum) -> dict[str, list[int] | None]:
    """Return {name: order} without those that equal an earlier one; None is the benchmark's own."""
    named: dict[tuple[int, ...], str] = {}
    for name, order in curriculum.orders.items():
        named.setdefault(tuple(order), name)
    own = list(range(len(curriculum.tasks)))
    return {name: None if list(order) == own else list(order) for order, name in named.items()}
