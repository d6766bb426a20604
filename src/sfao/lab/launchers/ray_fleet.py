"""The runs that are on a Ray cluster: sent, heard of, sent again when they are lost, called back."""

import pickle
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from sfao.lab.launchers.mailbox import Mailbox
from sfao.lab.launchers.mirror import Changes, apply_changes, read_files
from sfao.lab.launchers.ray_cluster import count_places, import_ray
from sfao.lab.launchers.ray_task import Placed, Terms, Ticket, make_absolute, run_ticket
from sfao.lab.run.errors import ConfigError, Interrupted
from sfao.lab.run.folder import finished_record
from sfao.lab.run.lock import lock_folder
from sfao.lab.run.pool import GRACE_SECONDS, LOOK_SECONDS, Lost, Refill, Watch
from sfao.lab.run.progress import Update
from sfao.lab.run.record import Record
from sfao.lab.run.worker import Begun, Failure, Job, Stopped, summarise_error

#: How often a run is begun again after its worker or its node was lost.
RETRIES = 3


@dataclass
class _Flight:
    """An attempt at a run that is on the cluster."""

    ticket: Ticket
    #: Where it is; None while it waits for a place.
    placed: Placed | None = None
    #: Holds the lock of the folder for a run that works elsewhere.
    lock: ExitStack = field(default_factory=ExitStack)


class Fleet:
    """All runs of one call, and how they ended so far."""

    def __init__(
        self,
        jobs: Sequence[Job],
        terms: Terms,
        all_shared: bool,
        mailbox: Any,
        watch: Watch,
        stopping: Callable[[], bool],
        refill: Refill,
    ) -> None:
        self._ray = import_ray()
        self.jobs, self.terms, self.all_shared = list(jobs), terms, all_shared
        self.watch, self.stopping, self.refill = watch, stopping, refill
        self.endings: dict[int, Record | Failure] = {}
        self._waiting = deque(range(len(self.jobs)))
        self._has_more = True
        #: {reference of a task: its flight}
        self._flights: dict[Any, _Flight] = {}
        self._mailbox = mailbox
        options = {"num_cpus": terms.cpus, "num_gpus": terms.gpus, **terms.options}
        self._task = self._ray.remote(run_ticket).options(**options)
        self._terms = self._ray.put(terms)

    def run(self) -> list[Record | Failure]:
        """Do all runs, and return how they ended; raise Interrupted when they were called back."""
        try:
            self._send_more()
            while self._flights:
                if self.stopping():
                    raise Interrupted(self._call_back())
                self._listen(LOOK_SECONDS)
                self._send_more()
        finally:
            for flight in self._flights.values():
                flight.lock.close()
        return [self.endings[number] for number in range(len(self.jobs))]

    # -- Sending -------------------------------------------------------------------------------------------

    def _send_more(self) -> None:
        """Send what may be sent: known jobs wait on the cluster, others are asked for when there is a place."""
        most = self.terms.workers
        while self._waiting and (most is None or len(self._flights) < most):
            number = self._waiting.popleft()
            self._send(Ticket(number, make_absolute(self.jobs[number])))
        if self._has_more and len(self._flights) < (most or count_places(self.terms.cpus, self.terms.gpus)):
            more = self.refill()
            self._has_more = bool(more)
            self._waiting.extend(range(len(self.jobs), len(self.jobs) + len(more)))
            self.jobs.extend(more)
            self._send_more()

    def _send(self, ticket: Ticket) -> None:
        folder = ticket.job.folder
        files = {} if self.all_shared or not folder.exists() else read_files(folder)
        self._flights[self._task.remote(ticket, self._terms, files, self._mailbox)] = _Flight(ticket)

    # -- Hearing -------------------------------------------------------------------------------------------

    def _listen(self, seconds: float) -> None:
        """Handle the letters that have arrived, and the runs that end within this time."""
        ended, _ = self._ray.wait(list(self._flights), timeout=seconds)
        self._open_letters()
        for reference in ended:
            flight = self._flights.pop(reference)
            flight.lock.close()
            self._land(flight, reference)

    def _open_letters(self) -> None:
        flights = {(flight.ticket.number, flight.ticket.attempt): flight for flight in self._flights.values()}
        for number, attempt, data in self._ray.get(self._mailbox.take.remote()):
            flight = flights.get((number, attempt))
            if flight is not None:  # else a late letter of a run that was lost
                self._hear(flight, pickle.loads(data))

    def _hear(self, flight: _Flight, message: Placed | Update | Changes) -> None:
        job = self.jobs[flight.ticket.number]
        if isinstance(message, Changes):
            apply_changes(job.folder, message)
        elif isinstance(message, Update):
            self.watch(job, message)
        else:
            flight.placed = message
            if not message.shared:
                job.folder.mkdir(parents=True, exist_ok=True)
                flight.lock.enter_context(lock_folder(job.folder))
            self.watch(job, Begun())

    def _land(self, flight: _Flight, reference: Any) -> None:
        errors = self._ray.exceptions
        try:
            ending: Record | Failure | Stopped = self._ray.get(reference)
        except errors.RayTaskError as error:  # a node that has joined since, without what a run needs
            self._end(flight, Failure(summarise_error(error.cause or error)))
        except errors.RayError as error:
            self._retry(flight, _explain_loss(errors, error))
        else:
            if not isinstance(ending, Stopped):
                self._end(flight, ending)
            elif not self.stopping():
                self._retry(flight, "its node lost this command")

    def _retry(self, flight: _Flight, reason: str) -> None:
        """Begin a lost run again, from its last checkpoint, unless it has ended or was lost too often."""
        ticket = flight.ticket
        job, attempt = self.jobs[ticket.number], ticket.attempt + 1
        said = f"{reason} (node {flight.placed.node})" if flight.placed else reason
        finished = finished_record(job.folder)
        if finished is not None:
            self._end(flight, finished)
        elif attempt > RETRIES:
            self._end(flight, Failure(f"{said}; lost {attempt} times in all"))
        else:
            self.watch(job, Lost(said, attempt, RETRIES))
            notice = f"{said}; began again, from its last checkpoint if there was one: retry {attempt} of {RETRIES}"
            self._send(replace(ticket, attempt=attempt, notice=notice))

    def _end(self, flight: _Flight, ending: Record | Failure) -> None:
        number = flight.ticket.number
        self.endings[number] = ending
        self.watch(self.jobs[number], ending)

    # -- Calling back --------------------------------------------------------------------------------------

    def _call_back(self) -> dict[str, str]:
        """Let every run save its state; return {run: reason} of those that keep their last checkpoint instead."""
        self._ray.get(self._mailbox.stop.remote())
        deadline = time.monotonic() + GRACE_SECONDS
        self._open_letters()
        while any(flight.placed for flight in self._flights.values()) and time.monotonic() < deadline:
            self._listen(LOOK_SECONDS)
        late = [flight.ticket.job.folder.name for flight in self._flights.values() if flight.placed]
        return dict.fromkeys(late, f"not done within {GRACE_SECONDS:.0f} s")


def open_mailbox() -> Any:
    """Return the actor, which starts meanwhile, on the node of this process: if one is lost, so is the other."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray = import_ray()
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=here).remote()


def check_mailbox(mailbox: Any) -> None:
    """Wait until the mailbox answers; raise a ConfigError if it never will."""
    ray = import_ray()
    try:
        ray.get(mailbox.post.remote(None))
    except ray.exceptions.RayActorError as error:
        raise ConfigError(
            "`address` must be of a cluster that knows this process, but it starts no actor for it; "
            "$RAY_AUTH_MODE and the token must be those with which all its nodes were started"
        ) from error


def _explain_loss(errors: Any, error: Exception) -> str:
    if isinstance(error, errors.NodeDiedError | errors.LocalRayletDiedError):
        return "its node was lost"
    if isinstance(error, errors.WorkerCrashedError):
        return "its worker was killed (kill -9, out of memory, or a lost node)"
    if isinstance(error, errors.OutOfMemoryError):
        return "its node was out of memory"
    return summarise_error(error)
