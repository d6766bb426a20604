"""The Ray cluster that runs are sent to: found, or started, and left without a word on the screen."""

import logging
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import cache
from io import TextIOBase
from typing import Any, TextIO

from sfao.checks import explain_missing
from sfao.lab.run.errors import ConfigError
from sfao.lab.run.pool import cores
from sfao.lab.run.signals import STOP_SIGNALS

#: Seconds in which a cluster must answer.
ANSWER_SECONDS = 10.0
#: Bytes of shared memory of a Ray that is started for one command, through which next to nothing passes.
STORE_BYTES = 2**27
START = "`ray start --head` starts a cluster; without --address, one is started for this command alone"


@dataclass(frozen=True)
class Node:
    """A node of the cluster that is alive."""

    id: str
    name: str
    cpus: float
    gpus: float


def import_ray() -> Any:
    """Return the module ray, or raise an error that names the extra that brings it."""
    os.environ.setdefault("RAY_gcs_server_request_timeout_seconds", f"{ANSWER_SECONDS:.0f}")  # 60 seconds otherwise
    try:
        import ray
    except ImportError as error:
        raise explain_missing(error, "ray", "--launcher ray", "ray") from None
    return ray


@contextmanager
def join_cluster(address: str | None) -> Iterator[None]:
    """Connect to the cluster at this address, or to one that is started for now; one that is joined already is used."""
    ray = import_ray()
    if ray.is_initialized():
        with _keep_quiet():
            yield
        return
    own = _list_own_variables() if address is None else {}
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    with _keep_quiet(), _set_variables(own):
        try:
            _connect(ray, address)
            if threading.current_thread() is threading.main_thread():  # Ray has put its own in the place of ours
                for number, handler in handlers.items():
                    signal.signal(number, handler)
            yield
        finally:
            ray.shutdown()


def list_nodes() -> list[Node]:
    """Return the nodes that are alive."""
    return [
        Node(node["NodeID"], node["NodeName"], node["Resources"].get("CPU", 0.0), node["Resources"].get("GPU", 0.0))
        for node in import_ray().nodes()
        if node["Alive"]
    ]


def choose_nodes(cpus: float, gpus: float) -> list[Node]:
    """Return the nodes that have room for a run, or raise a ConfigError that tells how much they have."""
    nodes = list_nodes()
    for name, wanted in (("cpus", cpus), ("gpus", gpus)):
        most = max(getattr(node, name) for node in nodes)
        if wanted > most:
            raise ConfigError(f"`{name}` must fit on a node of the cluster, whose largest has {most:g}, got {wanted:g}")
    fitting = [node for node in nodes if node.cpus >= cpus and node.gpus >= gpus]
    if not fitting:
        raise ConfigError(f"`cpus` and `gpus` must fit on one node of the cluster, but none has {cpus:g} and {gpus:g}")
    return fitting


def count_places(cpus: float, gpus: float) -> int:
    """Return how many runs the cluster can do at a time."""
    return sum(int(min(node.cpus / cpus, node.gpus / gpus if gpus else node.cpus / cpus)) for node in list_nodes())


@cache
def _list_own_variables() -> dict[str, str]:
    """Return the environment of a Ray for this process alone; $RAY_... that are set already come first."""
    return {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # runs are the work of this command, as in local processes
        # Its own secret, which Ray keeps for the process: it would write one into the home folder, and clusters that
        # were started without one would no longer understand whoever finds it there.
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
    }


@contextmanager
def _set_variables(wanted: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables that are not set yet, and take them away again."""
    new = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)


def _connect(ray: Any, address: str | None) -> None:
    quietly = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if address is None:
        own = {"num_cpus": cores(), "include_dashboard": False, "object_store_memory": STORE_BYTES}
        ray.init(address="local", **own, **quietly)
        return
    check_answers(address)
    try:
        ray.init(address=address, **quietly)
    except Exception as error:  # of many types: versions that differ, not a node of it, not a Ray at all
        raise ConfigError(_explain(address, error)) from error


def check_answers(address: str) -> None:
    """Raise a ConfigError unless something listens at the address; Ray itself would try for minutes."""
    found = _find_address(address)
    if found.startswith("ray://"):
        raise ConfigError(
            f"`address` must be auto or HOST:PORT, got {found!r}; call the command on a node of the cluster"
        )
    host, colon, port = found.rpartition(":")
    if not (colon and host and port.isdecimal()):
        raise ConfigError(f"`address` must be auto or HOST:PORT, got {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        at = found if found == address else f"{found}, which `{address}` stands for"
        raise ConfigError(
            f"`address` must be of a running Ray, but nothing answers at {at}: {reason}; {START}"
        ) from None


def _find_address(address: str) -> str:
    """Return the HOST:PORT that `auto` stands for: $RAY_ADDRESS, or the cluster of this machine."""
    if address != "auto" or os.environ.get("RAY_ADDRESS"):
        return os.environ["RAY_ADDRESS"] if address == "auto" else address
    from ray._private.services import canonicalize_bootstrap_address

    try:
        return str(canonicalize_bootstrap_address("auto"))
    except (ConnectionError, ValueError):
        raise ConfigError(f"`address` must be of a running Ray, but none runs on this machine; {START}") from None


def _explain(address: str, error: Exception) -> str:
    said = " ".join(str(error).split())
    if "ersion mismatch" in said:
        return (
            f"`address` must be of a cluster with the same Ray and Python, {address} is not: {said[:300]}; "
            "install the same versions on all nodes and start the cluster anew"
        )
    if "uthentication" in type(error).__name__:
        return (
            f"`address` must be of a cluster whose token this machine has, {address} refuses it; copy the token of its "
            "head, `ray get-auth-token` there, into $RAY_AUTH_TOKEN or ~/.ray/auth_token"
        )
    return (
        f"`address` must be of a Ray cluster that this machine is a node of, got {address}: "
        f"{type(error).__name__}: {said[:200]}; `ray start --address={address}` joins it"
    )


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
