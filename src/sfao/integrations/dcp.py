"""torch.distributed.checkpoint: optimizers with a gate or bound, saved by some ranks and loaded by any number.

dcp.save({"model": model, "optimizer": Checkpoint(optimizer)}, checkpoint_id=folder)
dcp.load({"model": model, "optimizer": Checkpoint(optimizer, folder)}, checkpoint_id=folder)
"""

from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.storage import StorageReader
from torch.optim import Optimizer
from torch.utils._pytree import keystr, tree_iter, tree_map, tree_map_with_path

from sfao.attachment import STATE_KEY
from sfao.distributed import is_sharded, shard_like
from sfao.drift_bound import DriftBound
from sfao.gate import Gate

#: The key, in a checkpoint, of everything but DTensors.
HEADER = "sfao_header"
#: Marks the place of a DTensor in the header: (PLACEHOLDER, name, number of the parameter, dtype).
PLACEHOLDER = "sfao_tensor"


class Checkpoint:
    """The state of an optimizer with a gate or bound, as torch.distributed.checkpoint takes it (`Stateful`).

    Args:
        owner: :class:`sfao.SFAO`, an optimizer with a gate or bound attached, or one of these.
        saved: to load: the folder of the checkpoint, or a reader of another storage.
        key: the name of this object in the dict that was saved, where it holds several.
    """

    def __init__(
        self,
        owner: Optimizer | Gate | DriftBound,
        saved: str | Path | StorageReader | None = None,
        *,
        key: str | None = None,
    ) -> None:
        if not isinstance(owner, (Optimizer, Gate, DriftBound)):
            raise ValueError(f"`owner` must be an optimizer, a Gate or a DriftBound, got {type(owner).__name__}")
        if isinstance(owner, Optimizer) and STATE_KEY not in owner.state_dict():
            raise ValueError(f"`owner` must have a gate or bound, but this {type(owner).__name__} has none; attach one")
        self._owner, self._key = owner, key
        self._reader = FileSystemReader(saved) if isinstance(saved, (str, Path)) else saved
        self._header: Any = None

    def state_dict(self) -> dict[str, Any]:
        """Return what is to be saved or, while there is something to load, empty tensors for it."""
        if self._reader is not None:
            self._header = self._read_header(self._reader)
            places = filter(_is_placeholder, tree_iter(self._header, is_leaf=_is_placeholder))
            return {HEADER: b"", **{name: self._make_empty(number, dtype) for _, name, number, dtype in places}}
        tensors: dict[str, Tensor] = {}

        def extract(path: Any, value: Any) -> Any:
            if not isinstance(value, Tensor) or not is_sharded(value):
                return value.detach().cpu() if isinstance(value, Tensor) else value
            tensors[keystr(path)] = value  # of the optimizer, like one of its parameters
            return PLACEHOLDER, keystr(path), path[1].key, str(value.dtype).removeprefix("torch.")

        torch.save(tree_map_with_path(extract, self._owner.state_dict()), file := BytesIO())
        return {HEADER: file.getvalue(), **tensors}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what was loaded; a RuntimeError, and nothing changed, if it belongs to another model."""
        if self._header is None:
            raise RuntimeError("a Checkpoint needs the folder to load from: Checkpoint(optimizer, folder)")

        def fill(value: Any) -> Any:
            return state_dict[value[1]] if _is_placeholder(value) else value

        found = tree_map(fill, self._header, is_leaf=_is_placeholder)
        for number, of_parameter in found.get("state", {}).items():  # what one process saved may be loaded into shards
            own = self._parameters[number]
            for name, value in of_parameter.items():
                if not is_sharded(value) and value.shape == own.shape:
                    of_parameter[name] = shard_like(value.to(own.device), own)
        self._owner.load_state_dict(found)
        self._reader = self._header = None  # loaded: the next state is to be saved

    @property
    def _parameters(self) -> list[Tensor]:
        groups = getattr(self._owner, "param_groups", ())
        return [parameter for group in groups for parameter in group["params"]]

    def _make_empty(self, number: int, dtype: str) -> Tensor:
        return torch.zeros_like(self._parameters[number].detach(), dtype=getattr(torch, dtype))

    def _read_header(self, reader: StorageReader) -> Any:
        try:
            known = reader.read_metadata().state_dict_metadata
        except FileNotFoundError as error:
            raise RuntimeError(f"`saved` must be a complete checkpoint, but there is none: {error}") from error
        names = [name for name in known if name.split(".")[-1] == HEADER]
        found = [name for name in names if self._key is None or name == f"{self._key}.{HEADER}"]
        if len(found) != 1:
            keys = ", ".join(name.removesuffix(f".{HEADER}") for name in names) or "none"
            raise RuntimeError(f"`saved` must hold one optimizer with a memory, or the one of `key`, got {keys}")
        prefix = found[0].removesuffix(f".{HEADER}")
        load(wanted := {prefix: {HEADER: b""}}, storage_reader=reader)
        return torch.load(BytesIO(wanted[prefix][HEADER]), weights_only=True)


def _is_placeholder(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 4 and value[0] == PLACEHOLDER
