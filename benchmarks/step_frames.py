"""Files and functions of sfao that a step and a consolidation enter.

    python benchmarks/step_frames.py

Counted with `sys.setprofile`, for SFAO and DriftBound, on a small network that has one task in memory.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

import sfao

SOURCE = str(Path(sfao.__file__).parent)
LOSS = nn.CrossEntropyLoss()
TASK = [(torch.randn(8, 6), torch.randint(0, 3, (8,))) for _ in range(4)]


def count_frames(work: Callable[[], Any]) -> tuple[set[str], set[tuple[str, str]]]:
    """Return the files and the functions under src/sfao that `work` enters."""
    functions: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE):
            functions.add((code.co_filename[len(SOURCE) + 1 :], code.co_qualname))

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    named = {(file, name) for file, name in functions if "<" not in name.rpartition(".")[2]}
    return {file for file, _ in functions}, named


def make(kind: str) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))
    if kind == "SFAO":
        optimizer = sfao.SFAO(model, lr=0.1)
        return model, optimizer, optimizer
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, plain, sfao.DriftBound(model, every=1).attach(plain)


def main() -> None:
    for kind in ("SFAO", "DriftBound"):
        model, optimizer, keeper = make(kind)
        keeper.consolidate(TASK, LOSS)
        LOSS(model(TASK[0][0]), TASK[0][1]).backward()
        optimizer.step()
        LOSS(model(TASK[1][0]), TASK[1][1]).backward()
        for name, work in (("step", optimizer.step), ("consolidate", partial(keeper.consolidate, TASK, LOSS))):
            files, functions = count_frames(work)
            print(f"{kind:11} {name:12} {len(files)} files, {len(functions)} functions: {', '.join(sorted(files))}")


if __name__ == "__main__":
    main()
