"""The launcher of runs on a Ray cluster, to be given to `compare` and `tune` in place of the pool of processes."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from sfao.lab.data.root import VARIABLE, resolve_root
from sfao.lab.launchers.ray_cluster import choose_nodes, join_cluster
from sfao.lab.launchers.ray_fleet import Fleet, check_mailbox, open_mailbox
from sfao.lab.launchers.ray_nodes import check_nodes, mark_folders
from sfao.lab.launchers.ray_task import Terms
from sfao.lab.run.errors import ConfigError
from sfao.lab.run.pool import Refill, Watch
from sfao.lab.run.record import Record
from sfao.lab.run.worker import Failure, Job


@dataclass(frozen=True)
class RayLauncher:
    """Runs jobs as `run_all` does, on the Ray cluster at `address`, or on a Ray that is started for the call alone.

    Each run takes so many `cpus`, by default its threads, and `gpus`, by default one if its device is a GPU.
    """

    address: str | None = None
    cpus: float | None = None
    gpus: float | None = None

    def __post_init__(self) -> None:
        if self.cpus is not None and not (isfinite(self.cpus) and self.cpus > 0):
            raise ConfigError(f"`cpus` must be above 0, got {self.cpus:g}")
        if self.gpus is not None and not (isfinite(self.gpus) and self.gpus >= 0):
            raise ConfigError(f"`gpus` must be at least 0, got {self.gpus:g}")
        for name, amount in (("cpus", self.cpus), ("gpus", self.gpus)):
            if amount is not None and amount > 1 and amount != int(amount):
                raise ConfigError(f"`{name}` must be a whole number where it is above 1, got {amount:g}")

    def __call__(
        self,
        jobs: Sequence[Job],
        *,
        workers: int | None = None,
        threads: int = 1,
        data_root: Path | None = None,
        resume: bool = False,
        watch: Watch = lambda job, event: None,
        stopping: Callable[[], bool] = lambda: False,
        refill: Refill = lambda: (),
        log: Sequence[str] = (),
    ) -> list[Record | Failure]:
        """Run all the jobs, at most `workers` at a time; see :func:`sfao.lab.run.pool.run_all`.

        A run whose worker or node is lost is begun again, up to three times, from its last checkpoint.
        """
        jobs = list(jobs or refill())
        if not jobs:
            return []
        on_gpu = any(job.config.device != "cpu" for job in jobs)
        with join_cluster(self.address), mark_folders(jobs) as mark:
            terms = Terms(
                cpus=self.cpus or float(threads),
                gpus=float(on_gpu) if self.gpus is None else self.gpus,
                workers=workers,
                threads=threads,
                data_root=_find_root(data_root),
                resume=resume,
                log=tuple(log),
                here=Path.cwd(),
                mark=mark,
            )
            nodes = choose_nodes(terms.cpus, terms.gpus)
            mailbox = open_mailbox()
            all_shared = check_nodes(nodes, jobs, terms)
            check_mailbox(mailbox)
            return Fleet(jobs, terms, all_shared, mailbox, watch, stopping, refill).run()


def _find_root(data_root: Path | None) -> Path | None:
    """Return the data root that was asked for here, which holds on all nodes; None leaves each node its own."""
    asked = data_root is not None or os.environ.get(VARIABLE)
    return resolve_root(data_root).absolute() if asked else None
