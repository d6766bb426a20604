"""torch.distributed.checkpoint: gated optimizers saved by some ranks and loaded by any number of others.

dcp.save({"model": model, "optimizer": Checkpoint(optimizer)}, checkpoint_id=folder)
dcp.load({"model": model, "optimizer": Checkpoint(optimizer, folder)}, checkpoint_id=folder)
"""

import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.storage import StorageReader
from torch.optim import Optimizer

from sfao.optim._attachment import STATE_KEY
from sfao.optim._sharding.marks import find_marks, mark_tensors, pack, replace_marks
from sfao.optim._sharding.shards import Shards, find_shards
from sfao.optim.gate import Gate
from sfao.optim.sfao import SFAO

#: The key, in a checkpoint, of all that is no tensor, with what tensors there are.
HEADER = "sfao_header"
#: The key of sums that each rank saves of its own weights; they are added up by whoever loads them.
SKETCH = "sketch"
#: The file of torch's that saves.
SAVER = "state_dict_saver.py"


class Checkpoint:
    """The state of a gated optimizer, or of a gate alone, as torch.distributed.checkpoint takes it (`Stateful`).

    Args:
        owner: :class:`sfao.SFAO`, an optimizer with a gate in front of it, or a gate.
        saved: to load: the folder of the checkpoint, or a reader of another storage. A new optimizer cannot know what
            was remembered: this tells it, before anything is loaded.
        key: what this object is called in the dict that was saved, where it holds several.
    """

    def __init__(
        self, owner: Optimizer | Gate, saved: str | Path | StorageReader | None = None, *, key: str | None = None
    ) -> None:
        if not isinstance(owner, (Optimizer, Gate)):
            raise ValueError(f"`owner` must be an optimizer or a gate, got {type(owner).__name__}")
        if not isinstance(owner, Gate) and not isinstance(owner, SFAO) and STATE_KEY not in owner.state_dict():
            raise ValueError(f"`owner` must have a gate, but this {type(owner).__name__} has none; attach() it first")
        self._owner, self._key = owner, key
        self._reader = FileSystemReader(saved) if isinstance(saved, (str, Path)) else saved
        self._header: Any = None

    def state_dict(self) -> dict[str, Any]:
        """Return what is to be saved or, while there is something to load, empty tensors for it."""
        if self._reader is None or _is_saving():
            tensors: dict[str, Tensor] = {}
            header = mark_tensors(self._owner.state_dict(), "", tensors)
            return {HEADER: pack(header), **tensors}
        self._header = self._read_header(self._reader)
        marks = {mark[1]: mark for mark in find_marks(self._header)}
        return {HEADER: b"", **{name: self._make_empty(mark) for name, mark in marks.items()}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what was loaded; a RuntimeError, and nothing changed, if it is of another model."""
        if self._header is None:
            raise RuntimeError("a Checkpoint must be told what to load: Checkpoint(optimizer, folder)")
        found = replace_marks(self._header, lambda mark: state_dict[mark[1]])
        self._owner.load_state_dict(found)
        self._reader = self._header = None  # it is loaded: what is asked for next is to be saved

    @property
    def _shards(self) -> Shards | None:
        groups = self._owner.param_groups
        return find_shards([(str(number), group["params"]) for number, group in enumerate(groups)])

    def _read_header(self, reader: StorageReader) -> Any:
        try:
            known = reader.read_metadata().state_dict_metadata
        except FileNotFoundError as error:
            raise RuntimeError(f"`saved` must be a whole checkpoint, but there is none: {error}") from error
        names = [name for name in known if name.split(".")[-1] == HEADER]
        found = [name for name in names if self._key is None or name == f"{self._key}.{HEADER}"]
        if len(found) != 1:
            said = f"none of {names}" if self._key else "none" if not names else f"{len(names)}, name one by `key`:"
            keys = ", ".join(name.removesuffix(f".{HEADER}") for name in names)
            raise RuntimeError(f"`saved` must hold one gated optimizer, but there is {said} {keys}".rstrip())
        prefix = found[0].removesuffix(f".{HEADER}")
        wanted: dict[str, Any] = {prefix: {HEADER: b""}}
        load(wanted, storage_reader=reader)
        return torch.load(BytesIO(wanted[prefix][HEADER]), weights_only=True)

    def _make_empty(self, mark: tuple[Any, ...]) -> Tensor:
        _, name, shape, dtype, dim = mark
        whole = torch.empty(shape, dtype=getattr(torch, dtype), device="meta")
        shards, device = self._shards, self._owner.param_groups[0]["params"][0].device
        if shards is None or dim is None or name.split("/")[-1] == SKETCH:
            return torch.empty(shape, dtype=whole.dtype, device=device)
        own = shards.take(whole, dim, shape[dim])
        return shards.wrap(torch.empty(own.shape, dtype=whole.dtype, device=device), dim, shape[dim])


def _is_saving() -> bool:
    """Tell whether torch asks for a state in order to save it: the same object may be given to load and to save."""
    frame = sys._getframe(1)
    while frame is not None and Path(frame.f_code.co_filename).name != SAVER:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None
