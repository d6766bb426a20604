"""Runs as tasks on a Ray cluster, which schedules and places them, and retries those of a lost worker or node.

The folders of the runs must be on storage that all nodes share: a run that begins again resumes from its last
checkpoint there.
"""

import logging
import os
import pickle
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any, TextIO, cast

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
#: The start of the name of a file beside the folders of the runs, by which a node knows that it sees them.
MARK = ".seen-by-nodes-"
START = "`ray start --head` starts a cluster; without --address, one is started for this command alone"
#: Variables of a Ray that is started for one command; those that are set already come first. Its token is its own,
#: because Ray would write one into the home folder, which clusters that were started without one don't understand.
OWN_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
}


@dataclass(frozen=True)
class RayRunner:
    """A `Runner` on the Ray cluster at `address`, or on a Ray that is started for the call alone.

    Each run takes so many `cpus`, by default its threads, and `gpus`, by default one if its device is a GPU.
    """

    address: str | None = None
    cpus: float | None = None
    gpus: float | None = None

    def __post_init__(self) -> None:
        for name, amount, least in (("cpus", self.cpus, "above 0"), ("gpus", self.gpus, "at least 0")):
            if amount is None:
                continue
            is_enough = amount > 0 if least == "above 0" else amount >= 0
            if not (is_enough and isfinite(amount) and (amount <= 1 or amount == int(amount))):
                raise ConfigError(f"`{name}` must be {least}, and a whole number if it is above 1, got {amount:g}")
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
        environment = {"env_vars": dict.fromkeys(THREAD_VARIABLES, str(threads))}  # read when libraries are loaded
        needs = {"num_cpus": cpus, "num_gpus": gpus, "runtime_env": environment}
        with _join_cluster(self.address):
            nodes = _choose_nodes(cpus, gpus)
            _check_nodes(nodes, jobs, root, environment)
            places = sum(int(min(node["CPU"] / cpus, node["GPU"] / gpus if gpus else 1e9)) for node in nodes)
            tasks = _Tasks(lambda job: Assignment(job, root, resume=True, log=tuple(log)), threads, needs, watch)
            waiting, has_more = jobs, True
            try:
                while waiting or has_more or tasks.pending:
                    while (waiting or has_more) and len(tasks.pending) < (workers or places):
                        if not waiting:
                            waiting = list(refill())
                            has_more = bool(waiting)
                        else:
                            tasks.submit(waiting.pop(0))
                    if stopping():
                        raise Interrupted(tasks.cancel())
                    tasks.listen(POLL_SECONDS)
            finally:
                tasks.queue.shutdown()
            return [tasks.endings[number] for number in range(len(tasks.jobs))]


class _Tasks:
    """The tasks of one call, and how they ended so far."""

    def __init__(self, assign: Callable[[Job], Assignment], threads: int, needs: dict[str, Any], watch: Watch) -> None:
        self._ray = import_ray()
        from ray.util.queue import Queue

        self.jobs: list[Job] = []
        self.endings: dict[int, Record | Failure] = {}
        #: {reference of a task: the number of its job}
        self.pending: dict[Any, int] = {}
        #: Messages of the runs, each (number of the job, pickled message): the queue imports nothing of ours.
        self.queue = Queue(actor_options={"num_cpus": 0, **_stay_on(self._ray.get_runtime_context().get_node_id())})
        self._assign, self._threads, self._watch = assign, threads, watch
        #: {number of a job: the times that it began again}
        self._retries: dict[int, int] = {}
        self._stopped: set[int] = set()
        self._task = self._ray.remote(_run_task).options(max_retries=RETRIES, **needs)

    def submit(self, job: Job) -> None:
        number = len(self.jobs)
        self.jobs.append(job)
        assignment = self._assign(replace(job, folder=job.folder.absolute()))
        self.pending[self._task.remote(number, assignment, self._threads, Path.cwd(), self.queue)] = number

    def listen(self, seconds: float) -> None:
        """Handle the messages of the runs, and the runs that end within this time."""
        ended, _ = self._ray.wait(list(self.pending), timeout=seconds) if self.pending else ([], [])
        for number, data in self.queue.get_nowait_batch(self.queue.qsize()):
            self._handle(number, pickle.loads(data))
        for reference in ended:
            number = self.pending.pop(reference)
            retries = self._retries.get(number, 0)
            ending = self._read_ending(reference, retries)
            if isinstance(ending, Record) and retries:
                ending.warnings.append(
                    f"its worker or its node was lost; resumed from its last checkpoint: {retries} times"
                )
                ending.save(self.jobs[number].folder)
            if not isinstance(ending, Stopped):
                self.endings[number] = ending
                self._watch(self.jobs[number], ending)

    def _handle(self, number: int, message: Begun | Update | Stopped) -> None:
        if isinstance(message, Stopped):
            self._stopped.add(number)
            return
        if isinstance(message, Begun):
            retries = self._retries[number] = self._retries.get(number, -1) + 1
            if retries:
                self._watch(self.jobs[number], Lost("its worker or its node was lost", retries, RETRIES))
                return
        self._watch(self.jobs[number], message)

    def _read_ending(self, reference: Any, retries: int) -> Ending:
        errors = self._ray.exceptions
        try:
            return cast(Ending, self._ray.get(reference))
        except errors.TaskCancelledError:
            return Stopped()
        except errors.RayTaskError as error:
            return Failure(summarise_error(error.cause or error))
        except errors.RayError as error:
            return Failure(f"its worker or its node was lost {retries + 1} times: {summarise_error(error)}")

    def cancel(self) -> dict[str, str]:
        """Let every run save its state; return {run: reason} of those that keep their last checkpoint instead."""
        for reference in self.pending:
            self._ray.cancel(reference)
        running = set(self.pending.values())
        deadline = time.monotonic() + GRACE_SECONDS
        while self.pending and time.monotonic() < deadline:
            self.listen(POLL_SECONDS)
        self.listen(0)
        late = running & self._retries.keys() - self._stopped - self.endings.keys()
        return {self.jobs[number].folder.name: f"not done within {GRACE_SECONDS:.0f} s" for number in sorted(late)}


# -- On the node that takes a run ------------------------------------------------------------------------


def _run_task(number: int, assignment: Assignment, threads: int, here: Path, queue: Any) -> Ending:
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
        _work_in(here)
        torch.set_num_threads(threads)
        send(Begun())
        _wait_until_free(assignment.job.folder)
        ending = do_run(assignment, throttle(send), stop)
        if isinstance(ending, Stopped):
            send(ending)
        return ending
    except (FolderError, OSError) as error:
        return Failure(summarise_error(error))
    finally:
        signal.signal(signal.SIGINT, before)


def _work_in(here: Path) -> None:
    """Work where the command was called, as a local worker does, if this machine has such a folder."""
    if here.is_dir():
        os.chdir(here)


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


def _probe_node(
    jobs: Sequence[Job], mark: str, versions: dict[str, str], data: dict[str, Any], root: Path | None, here: Path
) -> str:
    """Return what this node lacks for these jobs, one of each kind; empty if nothing."""
    _work_in(here)
    if _list_versions() != versions:
        return f"it must have {versions} as this machine, got {_list_versions()}: weights would depend on the node"
    try:
        for job in jobs:
            if not (job.folder.parent / mark).is_file():
                return f"it doesn't see {job.folder.parent}; put the runs into a folder that all nodes share"
            load_names(job.config)
            found = describe_dataset(BENCHMARKS[job.config.benchmark].load(root))
            wanted = data[job.config.benchmark]
            if not is_same_data(found, wanted):
                return f"it must have the data of {job.config.benchmark} as this machine, {wanted}, got {found}"
    except Exception as error:  # of modules of the user's too
        told = "the modules and the data of a run must be on every node as they are here, or in a shared folder"
        return f"{summarise_error(error)}; {told}"
    return ""


def _list_versions() -> dict[str, str]:
    return {"sfao": __version__, "torch": torch.__version__}


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


def _choose_nodes(cpus: float, gpus: float) -> list[dict[str, Any]]:
    """Return the resources of the nodes with room for a run, each with its "id" and "name"."""
    nodes = [
        {"CPU": 0.0, "GPU": 0.0, **node["Resources"], "id": node["NodeID"], "name": node["NodeName"]}
        for node in import_ray().nodes()
        if node["Alive"]
    ]
    fitting = [node for node in nodes if node["CPU"] >= cpus and node["GPU"] >= gpus]
    if not fitting:
        found = ", ".join(f"{node['CPU']:g} and {node['GPU']:g}" for node in nodes[:5])
        raise ConfigError(
            f"`cpus` and `gpus` must fit on one node of the cluster, got {cpus:g} and {gpus:g}; its nodes have {found}"
        )
    return fitting


def _check_nodes(
    nodes: Sequence[dict[str, Any]], jobs: Sequence[Job], root: Path | None, environment: dict[str, Any]
) -> None:
    """Refuse a cluster with a node that doesn't see the folders or the data of the runs; all are probed at once."""
    ray = import_ray()
    kinds = {(job.config.benchmark, job.config.method, job.config.model.name, job.folder.parent): job for job in jobs}
    each = [replace(job, folder=job.folder.absolute()) for job in kinds.values()]
    names = {job.config.benchmark for job in each}
    data = {name: describe_dataset(BENCHMARKS[name].load(root)) for name in names}
    probe = ray.remote(num_cpus=0, max_retries=0, runtime_env=environment)(_probe_node)
    with _mark_folders(each) as mark:
        wanted = (each, mark, _list_versions(), data, root, Path.cwd())
        probes = [(node, probe.options(**_stay_on(node["id"])).remote(*wanted)) for node in nodes]
        for node, reference in probes:
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
            (place / name).touch()
        yield name
    finally:
        for place in places:
            (place / name).unlink(missing_ok=True)


@contextmanager
def _join_cluster(address: str | None) -> Iterator[None]:
    """Connect to the cluster at this address, or to one that is started for now."""
    ray = import_ray()
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    new = {name: value for name, value in OWN_VARIABLES.items() if address is None and name not in os.environ}
    os.environ.update(new)
    level = logging.getLogger("ray").level
    # Ray tells the deaths of workers, which we report ourselves, on standard output from a thread of its own.
    with redirect_stdout(cast(TextIO, _OwnThread(sys.stdout))):
        try:
            _connect(ray, address)
            if threading.current_thread() is threading.main_thread():  # Ray has put its own in the place of ours
                for number, handler in handlers.items():
                    signal.signal(number, handler)
            yield
        finally:
            ray.shutdown()
            logging.getLogger("ray").setLevel(level)
            for name in new:
                os.environ.pop(name, None)


def _connect(ray: Any, address: str | None) -> None:
    quietly = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if address is None:
        ray.init(address="local", num_cpus=cores(), include_dashboard=False, object_store_memory=2**27, **quietly)
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


class _OwnThread:
    """A stream that passes on what one thread writes, and drops what others do."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._owner = stream, threading.get_ident()

    def write(self, text: str) -> int:
        return self._stream.write(text) if threading.get_ident() == self._owner else len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
