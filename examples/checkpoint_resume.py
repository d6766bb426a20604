"""A job that is stopped in the middle of the second task and goes on in another process, from its checkpoint.

    python examples/checkpoint_resume.py

What SFAO remembers of past tasks is in the optimizer's own `state_dict`. So nothing is new about the checkpoint: it is
the model, the optimizer and the place in the data. The run that was stopped ends with the same bits.
"""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import sfao
from real_data import accuracy, read_stream, tell
from sfao.models import mlp
from sfao.streams.stream import Stream

BATCH, RATE = 16, 0.05


@dataclass
class Job:
    """A model, its optimizer, and how far it has come: so many tasks, and so many batches of the next one."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
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
    if kind == "SGD":
        return Job(model, torch.optim.SGD(model.parameters(), lr=RATE))
    return Job(model, sfao.SFAO(sfao.layer_groups(model), lr=RATE))


def go_on(job: Job, stream: Stream, stop_after: tuple[int, int] | None = None) -> list[float]:
    """Learn what is left, or up to so many tasks and batches; return the accuracy on each task when it was learnt."""
    learnt = []
    for number in range(job.tasks, len(stream)):
        task, order = stream.tasks[number], torch.Generator().manual_seed(number)
        for images, labels in task.train.batches(BATCH, order, start=job.batches):
            job.optimizer.zero_grad()
            cross_entropy(job.model(images), labels).backward()
            job.optimizer.step()
            job.batches += 1
            if (job.tasks, job.batches) == stop_after:
                return learnt
        if isinstance(job.optimizer, sfao.SFAO):
            job.optimizer.consolidate(job.model, task.train.batches(BATCH))
        job.tasks, job.batches = number + 1, 0
        learnt.append(accuracy(job.model, task))
    return learnt


def main() -> None:
    stream = read_stream("mnist", classes=2, tasks=4, images=400)
    for kind in ("SGD", "SFAO"):
        whole = make_job(stream, kind)
        tell(kind, go_on(whole, stream), [accuracy(whole.model, task) for task in stream])
    with TemporaryDirectory() as folder:
        file = Path(folder) / "checkpoint.pt"
        stopped = make_job(stream, "SFAO")
        go_on(stopped, stream, stop_after=(1, 2))
        stopped.save(file)
        size = file.stat().st_size / 1e6
        print(f"stopped in task {stopped.tasks + 1}, after batch {stopped.batches}: {size:.1f} MB saved")
        resumed = make_job(stream, "SFAO", seed=1)  # another process would begin with other weights
        resumed.load(file)
    go_on(resumed, stream)
    pairs = zip(whole.model.parameters(), resumed.model.parameters(), strict=True)
    print("the same bits as the run that was not stopped:", all(torch.equal(one, other) for one, other in pairs))


if __name__ == "__main__":
    main()
