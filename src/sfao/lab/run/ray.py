"""Runs as tasks on a Ray cluster, which places them and begins those of a lost worker or node again.

The folders of the runs must be on storage that all nodes share: a run that begins again resumes from its last
checkpoint there.
"""

import logging
import os
import pickle
import platform
import secrets
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from functools import cache
from io import TextIOBase
from math import isfinite
from pathlib import Path
from typing import Any, TextIO

import torch

from sfao import __version__
from sfao.checks import explain_missing
from sfao.lab.data.root import VARIABLE, resolve_root
from sfao.lab.run.config import load_names
from sfao.lab.run.errors import ConfigError, FolderError, Interrupted
from sfao.lab.run.files import check_free
from sfao.lab.run.jobs import Begun, Failure, Job, Lost, Refill, Stopped, Watch
from sfao.lab.run.pool import (
    GRACE_SECONDS,
    POLL_SECONDS,
    THREAD_VARIABLES,
    Assignment,
    Ending,
    cores,
    do_run,
    summarise_error,
    throttle,
)
from sfao.lab.run.progress import Update
from sfao.lab.run.record import Record, describe_dataset, is_same_data
from sfao.lab.run.signals import STOP_SIGNALS
from sfao.lab.streams.suite import BENCHMARKS

#: How often a run begins again after its worker or its node was lost.
RETRIES = 3
#: Seconds in which a cluster must answer.
ANSWER_SECONDS = 10.0
#: Seconds that the process of a lost worker has to end, before its run begins again in the same folder.
LOCKED_SECONDS = 60.0
#: Bytes of shared memory of a Ray that is started for one command, through which next to nothing passes.
STORE_BYTES = 2**27
#: The start of the name of a file beside the folders of the runs, by which a node knows that it sees them.
MARK = ".seen-by-nodes-"
START = "`ray start --head` starts a cluster; without --address, one is started for this command alone"


@dataclass(frozen=True)
class _Terms:
    """What holds for all runs of one call."""

    threads: int
    data_root: Path | None
    log: tuple[str, ...]
    #: The folder in which the command was called.
    here: Path
    #: The name of a file beside the folders of the runs.
    mark: str


@dataclass(frozen=True)
class RayRunner:
    """A `Runner` on the Ray cluster at `address`, or on a Ray that is started for the call alone.

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
                raise ConfigError(f"`{name}` must be a whole number if it is above 1, got {amount:g}")
        import_ray()

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
        """Run the jobs; unfinished ones are resumed, because the caller has checked the folders."""
        jobs = list(jobs or refill())
        if not jobs:
            return []
        cpus = self.cpus or float(threads)
        gpus = self.gpus if self.gpus is not None else float(any(job.config.device != "cpu" for job in jobs))
        asked = data_root is not None or os.environ.get(VARIABLE)  # else each node has its own cache
        root = resolve_root(data_root).absolute() if asked else None
        with _join_cluster(self.address), _mark_folders(jobs) as mark:
            terms = _Terms(threads, root, tuple(log), Path.cwd(), mark)
            nodes = _choose_nodes(cpus, gpus)
            _check_nodes(nodes, jobs, terms)
            places = sum(int(min(node["CPU"] / cpus, node.get("GPU", 0) / gpus if gpus else 1e9)) for node in nodes)
            tasks = _Tasks(jobs, terms, cpus, gpus, watch)
            try:
                while tasks.submit(workers or places, refill) or tasks.pending:
                    if stopping():
                        raise Interrupted(tasks.cancel())
                    tasks.listen(POLL_SECONDS)
            finally:
                tasks.queue.shutdown()
            return [tasks.endings[number] for number in range(len(tasks.jobs))]


class _Tasks:
    """The tasks of one call, and how they ended so far."""

    def __init__(self, jobs: Sequence[Job], terms: _Terms, cpus: float, gpus: float, watch: Watch) -> None:
        self._ray = import_ray()
        from ray.util.queue import Queue

        self.jobs, self.watch = list(jobs), watch
        self.endings: dict[int, Record | Failure] = {}
        #: {reference of a task: the number of its job}
        self.pending: dict[Any, int] = {}
        #: Messages of the runs, each (number of the job, pickled message): the queue imports nothing of ours.
        self.queue = Queue(actor_options={"num_cpus": 0, **_stay_on(self._ray.get_runtime_context().get_node_id())})
        self._waiting = deque(range(len(jobs)))
        self._has_more = True
        #: {number of a job: the times that it began}
        self._begun: dict[int, int] = {}
        self._stopped: set[int] = set()
        self._terms = self._ray.put(terms)
        self._task = self._ray.remote(_run_task).options(
            num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES, runtime_env=_limit_threads(terms)
        )

    def submit(self, most: int, refill: Refill) -> bool:
        """Submit jobs until `most` are pending, after asking for more if none is waiting; return False for none."""
        while len(self.pending) < most:
            if not self._waiting and self._has_more:
                more = refill()
                self._has_more = bool(more)
                self._waiting.extend(range(len(self.jobs), len(self.jobs) + len(more)))
                self.jobs.extend(more)
            if not self._waiting:
                return False
            number = self._waiting.popleft()
            job = replace(self.jobs[number], folder=self.jobs[number].folder.absolute())
            self.pending[self._task.remote(number, job, self._terms, self.queue)] = number
        return True

    def listen(self, seconds: float) -> None:
        """Handle the messages of the runs, and the runs that end within this time."""
        ended, _ = self._ray.wait(list(self.pending), timeout=seconds)
        self._read_messages()
        for reference in ended:
            number = self.pending.pop(reference)
            ending = self._read_ending(reference, number)
            if not isinstance(ending, Stopped):
                self.endings[number] = ending
                self.watch(self.jobs[number], ending)

    def _read_messages(self) -> None:
        for number, data in self.queue.get_nowait_batch(self.queue.qsize()):
            job, message = self.jobs[number], pickle.loads(data)
            if isinstance(message, Stopped):
                self._stopped.add(number)
                continue
            if isinstance(message, Begun):
                attempt = self._begun[number] = self._begun.get(number, -1) + 1
                if attempt:
                    message = Lost("its worker or its node was lost", attempt, RETRIES)
            self.watch(job, message)

    def _read_ending(self, reference: Any, number: int) -> Ending:
        errors = self._ray.exceptions
        retries = self._begun.get(number, 0)
        try:
            ending: Ending = self._ray.get(reference)
        except errors.TaskCancelledError:
            return Stopped()
        except errors.RayTaskError as error:
            return Failure(summarise_error(error.cause or error))
        except errors.RayError as error:
            return Failure(f"its worker or its node was lost {retries + 1} times: {summarise_error(error)}")
        if isinstance(ending, Record) and retries:
            ending.warnings.append(
                f"its worker or its node was lost; resumed from its last checkpoint: {retries} times"
            )
            ending.save(self.jobs[number].folder)
        return ending

    def cancel(self) -> dict[str, str]:
        """Let every run save its state; return {run: reason} of those that keep their last checkpoint instead."""
        for reference in self.pending:
            self._ray.cancel(reference)
        running = dict(self.pending)
        deadline = time.monotonic() + GRACE_SECONDS
        while self.pending and time.monotonic() < deadline:
            self.listen(POLL_SECONDS)
        self._read_messages()
        numbers = {number for number in running.values() if number in self._begun}
        late = numbers - self._stopped - self.endings.keys()
        reason = f"not done within {GRACE_SECONDS:.0f} s"
        return {self.jobs[number].folder.name: reason for number in sorted(late)}


# -- On the node that takes a run ------------------------------------------------------------------------


def _run_task(number: int, job: Job, terms: _Terms, queue: Any) -> Ending:
    """Do one run, and send its progress to the queue."""
    import ray

    stop = threading.Event()

    def send(message: Begun | Update | Stopped) -> None:
        try:
            queue.put((number, pickle.dumps(message)))
        except ray.exceptions.RayError:  # the command is gone
            stop.set()

    before = signal.signal(signal.SIGINT, lambda number, frame: stop.set())  # `ray.cancel` interrupts the process
    try:
        _enter(terms)
        send(Begun())
        _wait_until_free(job.folder)
        ending = do_run(Assignment(job, terms.data_root, resume=True, log=terms.log), throttle(send), stop)
        if isinstance(ending, Stopped):
            send(ending)
        return ending
    except (FolderError, OSError) as error:
        return Failure(summarise_error(error))
    finally:
        signal.signal(signal.SIGINT, before)


def _enter(terms: _Terms) -> None:
    """Work where the command was called, as a local worker does, if this machine has such a folder."""
    if terms.here.is_dir():
        os.chdir(terms.here)
    torch.set_num_threads(terms.threads)


def _wait_until_free(folder: Path) -> None:
    """Wait for the process of a lost worker to end; it may be saving its state."""
    deadline = time.monotonic() + LOCKED_SECONDS
    while True:
        try:
            return check_free(folder)
        except FolderError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def _inspect_node(jobs: Sequence[Job], versions: Mapping[str, str], data: Mapping[str, Any], terms: _Terms) -> str:
    """Return what this node lacks for these jobs, one of each kind; empty if nothing."""
    _enter(terms)
    for name, here in _list_versions().items():
        if here != versions[name]:
            return f"it must have {name} {versions[name]} as this machine, got {here}: weights would depend on the node"
    try:
        for job in jobs:
            if not (job.folder.parent / terms.mark).is_file():
                return f"it doesn't see {job.folder.parent}; put the runs into a folder that all nodes share"
            load_names(job.config)
            name = job.config.benchmark
            found = describe_dataset(BENCHMARKS[name].load(terms.data_root))
            if not is_same_data(found, data[name]):
                return f"it must have the data of {name} as this machine, {data[name]}, got {found}"
    except Exception as error:  # of modules of the user's too
        told = "the modules and the data of a run must be on every node as they are here, or in a shared folder"
        return f"{summarise_error(error)}; {told}"
    return ""


def _list_versions() -> dict[str, str]:
    return {"sfao": __version__, "torch": torch.__version__, "Python": platform.python_version()}


# -- The cluster -------------------------------------------------------------------------------------------


def import_ray() -> Any:
    """Return the module ray, or raise an error that names the extra that brings it."""
    os.environ.setdefault("RAY_gcs_server_request_timeout_seconds", f"{ANSWER_SECONDS:.0f}")  # 60 seconds otherwise
    try:
        import ray
    except ImportError as error:
        raise explain_missing(error, "ray", "--launcher ray", "ray") from None
    return ray


def _stay_on(node: str) -> dict[str, Any]:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}


def _limit_threads(terms: _Terms) -> dict[str, Any]:
    """Return a runtime environment: numerical libraries read their number of threads when they are loaded."""
    return {"env_vars": dict.fromkeys(THREAD_VARIABLES, str(terms.threads))}


def _choose_nodes(cpus: float, gpus: float) -> list[dict[str, Any]]:
    """Return the resources of the nodes with room for a run, each with its "id" and "name"."""
    nodes = [
        {"CPU": 0.0, **node["Resources"], "id": node["NodeID"], "name": node["NodeName"]}
        for node in import_ray().nodes()
        if node["Alive"]
    ]
    for name, wanted in (("cpus", cpus), ("gpus", gpus)):
        most = max(node.get(name.upper().rstrip("S"), 0) for node in nodes)
        if wanted > most:
            raise ConfigError(f"`{name}` must fit on a node of the cluster, whose largest has {most:g}, got {wanted:g}")
    fitting = [node for node in nodes if node["CPU"] >= cpus and node.get("GPU", 0) >= gpus]
    if not fitting:
        raise ConfigError(f"`cpus` and `gpus` must fit on one node of the cluster, but none has {cpus:g} and {gpus:g}")
    return fitting


def _check_nodes(nodes: Sequence[Mapping[str, Any]], jobs: Sequence[Job], terms: _Terms) -> None:
    """Refuse a cluster with a node that can't take these runs; all nodes inspect themselves at once."""
    ray = import_ray()
    kinds = {(job.config.benchmark, job.config.method, job.config.model.name, job.folder.parent): job for job in jobs}
    each = [replace(job, folder=job.folder.absolute()) for job in kinds.values()]
    names = {job.config.benchmark for job in each}
    data = {name: describe_dataset(BENCHMARKS[name].load(terms.data_root)) for name in names}
    inspect = ray.remote(_inspect_node)
    base = {"num_cpus": 0, "max_retries": 0, "runtime_env": _limit_threads(terms)}
    asked = [
        (node, inspect.options(**base, **_stay_on(node["id"])).remote(each, _list_versions(), data, terms))
        for node in nodes
    ]
    for node, reference in asked:
        try:
            lacks = ray.get(reference)
        except (ray.exceptions.RayTaskError, ray.exceptions.RuntimeEnvSetupError) as error:
            lacks = f"it must have sfao[lab,ray] as this machine: {str(error).strip().splitlines()[-1][:200]}"
        except ray.exceptions.RayError:
            continue  # lost meanwhile: Ray places no run there
        if lacks:
            raise ConfigError(f"node {node['name']} cannot take these runs: {lacks}")


@contextmanager
def _mark_folders(jobs: Sequence[Job]) -> Iterator[str]:
    """Put a file beside the folders of the runs, by which a node knows that it sees them; yield its name."""
    name = MARK + secrets.token_hex(8)
    places = {job.folder.parent for job in jobs}
    try:
        for place in places:
            place.mkdir(parents=True, exist_ok=True)
            for left in place.glob(f"{MARK}*"):  # by a command that was killed
                left.unlink(missing_ok=True)
            (place / name).touch()
        yield name
    finally:
        for place in places:
            (place / name).unlink(missing_ok=True)


@contextmanager
def _join_cluster(address: str | None) -> Iterator[None]:
    """Connect to the cluster at this address, or to one that is started for now; one that is joined already is used."""
    ray = import_ray()
    if ray.is_initialized():
        with _keep_quiet():
            yield
        return
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    new = {name: value for name, value in _own_variables().items() if address is None and name not in os.environ}
    os.environ.update(new)
    with _keep_quiet():
        try:
            _connect(ray, address)
            if threading.current_thread() is threading.main_thread():  # Ray has put its own in the place of ours
                for number, handler in handlers.items():
                    signal.signal(number, handler)
            yield
        finally:
            ray.shutdown()
            for name in new:
                os.environ.pop(name, None)


@cache
def _own_variables() -> dict[str, str]:
    """Return the environment of a Ray for this process alone; $RAY_... that are set already come first."""
    return {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # runs are the work of this command, as in local processes
        # Its own secret, which Ray keeps for the process: it would write one into the home folder, and clusters that
        # were started without one would no longer understand whoever finds it there.
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
    }


def _connect(ray: Any, address: str | None) -> None:
    quietly = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if address is None:
        own = {"num_cpus": cores(), "include_dashboard": False, "object_store_memory": STORE_BYTES}
        ray.init(address="local", **own, **quietly)
        return
    found = os.environ.get("RAY_ADDRESS", address) if address == "auto" else address
    if found != "auto":
        _check_answers(found)
    try:
        ray.init(address=address, **quietly)
    except Exception as error:  # of many types: versions that differ, not a node of it, another token, not a Ray at all
        raise ConfigError(
            f"`address` must be of a running Ray cluster that this machine is a node of, with the same versions of Ray "
            f"and Python and the same token ($RAY_AUTH_TOKEN or ~/.ray/auth_token), got {found}: "
            f"{summarise_error(error)}; {START}"
        ) from error


def _check_answers(address: str) -> None:
    """Raise a ConfigError unless something listens at the address; Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdecimal()) or "/" in host:
        raise ConfigError(f"`address` must be auto or HOST:PORT, got {address!r}; call the command on a node of it")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"`address` must be of a running Ray, but nothing answers at {address}: {reason}; {START}"
        ) from None


@contextmanager
def _keep_quiet() -> Iterator[None]:
    """Drop what threads of Ray print, such as the deaths of workers, which we report ourselves."""
    before = logging.getLogger("ray").level
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    try:
        with redirect_stdout(_OwnThread(sys.stdout)):
            yield
    finally:
        logging.getLogger("ray").setLevel(before)


class _OwnThread(TextIOBase):
    """A stream that passes on what one thread writes, and drops what others do."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._owner = stream, threading.get_ident()

    def write(self, text: str) -> int:
        return self._stream.write(text) if threading.get_ident() == self._owner else len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()
