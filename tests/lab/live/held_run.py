"""A real run under its page, in a thread that makes as many steps as a test lets it."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from threading import Condition, Thread

from sfao.lab.live.server import serve_run
from sfao.lab.run.config import configure
from sfao.lab.run.errors import Interrupted
from sfao.lab.run.loop import execute
from sfao.lab.run.record import Record

#: Two tasks of 64 steps: telemetry comes at the steps 20, 40, ..., 120.
SMALL = {"epochs": 4, "tasks": 2, "batch_size": 64, "model.hidden": 16, "fraction": 0.5}
#: Seconds after which something that should come never will.
PATIENCE = 60.0


class HeldRun:
    """The run, held after the step it was sent to."""

    def __init__(self, folder: Path, method: str = "sfao", *, resume: bool = False, **settings: object) -> None:
        self.folder, self.resume = folder, resume
        self.config = configure("split-mnist-5k", method, settings={**SMALL, **settings})
        self.said: list[str] = []
        self.record: Record | None = None
        self.error: BaseException | None = None
        self.made = 0
        self._allowed: float = 0
        self._is_stopped = False
        self._moved = Condition()
        self.thread = Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            with serve_run(self.folder, None, self.said.append) as live:
                self.record = execute(
                    self.config,
                    self.folder,
                    resume=self.resume,
                    report=live.hear,
                    stopping=self._hold,
                    beginning=live.begin,
                )
                live.finish(self.record)
        except (Interrupted, RuntimeError) as error:
            self.error = error

    def _hold(self) -> bool:
        with self._moved:
            self.made += 1
            self._moved.notify_all()
            self._moved.wait_for(lambda: self.made < self._allowed or self._is_stopped, PATIENCE)
            return self._is_stopped

    def go_to(self, step: float) -> None:
        """Make the steps up to this one of those made here."""
        with self._moved:
            self._allowed = step
            self._moved.notify_all()
            if step < inf:
                assert self._moved.wait_for(lambda: self.made >= step, PATIENCE)

    def stop(self) -> None:
        with self._moved:
            self._is_stopped = True
            self._moved.notify_all()

    @property
    def address(self) -> str:
        return self.said[0].split()[-1]


@contextmanager
def held_run(folder: Path, method: str = "sfao", first: int = 1, **how: object) -> Iterator[HeldRun]:
    """Yield a run that is held after its first step or steps; it makes the others at the end, if it was not stopped."""
    held = HeldRun(folder, method, **how)
    held.thread.start()
    try:
        held.go_to(first)
        yield held
    finally:
        held.go_to(inf)
        held.thread.join(PATIENCE)
        assert not held.thread.is_alive()


def run_unwatched(folder: Path, method: str = "sfao", **settings: object) -> Record:
    return execute(HeldRun(folder, method, **settings).config, folder)
