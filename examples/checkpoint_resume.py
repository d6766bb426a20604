"""A job that is stopped in the middle of the second task and goes on in another process, from its checkpoint.

    python examples/checkpoint_resume.py

The memory of past tasks is in the optimizer's `state_dict`, with SFAO and with an attached DriftBound, so a checkpoint
holds what it always does: the model, the optimizer and the place in the data. The stopped run ends with the same bits.
Saving projects the weights of a DriftBound, so the run that isn't stopped saves at the same step.
"""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import sfao
from real_data import accuracy, read_stream, tell
from sfao.lab.models import mlp
from sfao.lab.streams.stream import Stream

BATCH, RATE = 16, 0.05
#: In the second task, after its second batch.
SAVED_AT = (1, 2)


@dataclass
class Job:
    """A model, its optimizer, and how far it has come: so many tasks, and so many batches of the next one."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    memory: Any = None
    tasks: int = 0
    batches: int = 0

    def save(self, file: Path) -> None:
        place = {"tasks": self.tasks, "batches": self.batches}
        torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), **place}, file)

    def load(self, file: Path) -> None:
        saved = torch.load(file, weights_only=True)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.tasks, self.batches = saved["tasks"], saved["batches"]


def make_job(stream: Stream, kind: str, seed: int = 0) -> Job:
    torch.manual_seed(seed)
    model = mlp(stream.input_shape, stream.outputs, hidden=100)
    if kind == "SFAO":
        optimizer = sfao.SFAO(model, lr=RATE)
        return Job(model, optimizer, optimizer)
    plain = torch.optim.SGD(model.parameters(), lr=RATE)
    return Job(model, plain, sfao.DriftBound(model).attach(plain) if kind == "DriftBound" else None)


def train(job: Job, stream: Stream, file: Path, stop: bool = False) -> list[float]:
    """Learn what is left, and save on the way, where a job may stop; return the accuracy on each learned task."""
    learned = []
    for number in range(job.tasks, len(stream)):
        task, order = stream.tasks[number], torch.Generator().manual_seed(number)
        for images, labels in task.train.batches(BATCH, order, start=job.batches):
            job.optimizer.zero_grad()
            cross_entropy(job.model(images), labels).backward()
            job.optimizer.step()
            job.batches += 1
            if (job.tasks, job.batches) == SAVED_AT:
                job.save(file)
                if stop:
                    return learned
        if job.memory is not None:
            job.memory.consolidate(task.train.batches(BATCH), cross_entropy)
        job.tasks, job.batches = number + 1, 0
        learned.append(accuracy(job.model, task))
    return learned


def main() -> None:
    stream = read_stream("mnist", classes=2, tasks=4, images=400)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "checkpoint.pt"
        for kind in ("SGD", "SFAO", "DriftBound"):
            whole = make_job(stream, kind)
            tell(kind, train(whole, stream, file), [accuracy(whole.model, task) for task in stream])
            train(make_job(stream, kind), stream, file, stop=True)
            resumed = make_job(stream, kind, seed=1)  # another process would begin with other weights
            resumed.load(file)
            train(resumed, stream, file)
            pairs = zip(whole.model.parameters(), resumed.model.parameters(), strict=True)
            same = all(torch.equal(one, other) for one, other in pairs)
            print(f"stopped after {SAVED_AT} and resumed: {file.stat().st_size / 1e6:.1f} MB saved, same bits: {same}")


if __name__ == "__main__":
    main()
