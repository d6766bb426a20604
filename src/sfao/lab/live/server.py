"""The server of the page: this machine alone, two addresses, nothing but GET."""

import errno
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import create_connection
from socketserver import TCPServer
from threading import BoundedSemaphore, Thread
from typing import Any

from sfao.lab.live.live_run import Ending, LiveRun, describe_error
from sfao.lab.live.page import render_page
from sfao.lab.run.errors import ConfigError

HOST = "127.0.0.1"
PAGE, EVENTS = "/", "/events"
#: Seconds between two states that a page gets; for a client that does not read or write; for the last state to be sent.
BETWEEN, PATIENCE, LINGER = 1.0, 10.0, 1.0
#: Seconds for which the server sleeps when nobody asks: a thread that wakes up takes time from the one that trains.
SLEEP = 3600.0
MOST_CONNECTIONS = 32

#: Names of this machine, with any port: a port that ssh forwards has another number. A name that an attacker lets
#: point to this machine is none of them.
_OURS = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)

Refusal = tuple[HTTPStatus, str]


def find_refusal(method: str, path: str, headers: Message) -> Refusal | None:
    """Return why a request is not answered; None where it is."""
    hosts = headers.get_all("Host", [])
    if len(hosts) != 1 or not _OURS.fullmatch(hosts[0]):
        return HTTPStatus.MISDIRECTED_REQUEST, "the host must be 127.0.0.1 or localhost"
    if method != "GET":
        return HTTPStatus.METHOD_NOT_ALLOWED, "the method must be GET"
    if path not in (PAGE, EVENTS):
        return HTTPStatus.NOT_FOUND, f"the path must be {PAGE} or {EVENTS}"
    if path == EVENTS and headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        return HTTPStatus.FORBIDDEN, f"{EVENTS} is for the page at {PAGE}"
    return None


class LiveServer(ThreadingHTTPServer):
    """Serves one run; a thread for each connection, and no more than a few of them."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int, live: LiveRun, complain: Callable[[str], None]) -> None:
        self.live = live
        self.page, self.policy = render_page()
        self._complain: Callable[[str], None] | None = complain
        self._free = BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__((HOST, port), _Handler)

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}"

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # that of HTTPServer asks a network for the name of this machine

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say once what went wrong here; a client that is gone is nothing wrong."""
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | TimeoutError) and self._complain is not None:
            self._complain(f"the live page has an error, the run goes on: {type(error).__name__}: {error}")
            self._complain = None


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE
    server: LiveServer

    def parse_request(self) -> bool:
        """Parse the request; answer it here where it is refused."""
        if not super().parse_request():
            return False
        refusal = find_refusal(self.command, self.path, self.headers)
        if refusal is not None:
            self.send_error(*refusal)
        return refusal is None

    def do_GET(self) -> None:
        if self.path == PAGE:
            self._answer(HTTPStatus.OK, "text/html", self.server.page)
        else:
            self._send_events()

    def _send_events(self) -> None:
        """Send the state of the run every second, and as soon as it ends; that is the last."""
        live = self.server.live
        with live.watched():
            self._begin(HTTPStatus.OK, "text/event-stream")
            self.wfile.write(b"retry: 1000\n")
            ended = False
            while not ended:
                ended = live.ending is not None
                self.wfile.write(f"data: {live.as_json()}\n\n".encode())
                if not ended:
                    live.wait(BETWEEN)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        text = message or HTTPStatus(code).phrase
        self._answer(HTTPStatus(code), "text/plain", f"{int(code)}: {text}\n".encode())

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self._begin(status, kind, {"Content-Length": str(len(body))})
        self.wfile.write(body)

    def _begin(self, status: HTTPStatus, kind: str, more: Mapping[str, str] | None = None) -> None:
        allow = {"Allow": "GET"} if status is HTTPStatus.METHOD_NOT_ALLOWED else {}
        self.close_connection = True
        self.send_response(status)
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Security-Policy": self.server.policy,
            "X-Frame-Options": "DENY",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
            "Connection": "close",
        }
        for name, value in {**headers, **allow, **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()

    def version_string(self) -> str:
        return "sfao"

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing: the terminal belongs to the run."""


@contextmanager
def serve_run(folder: Path, port: int | None, say: Callable[[str], None]) -> Iterator[LiveRun]:
    """Serve the page of the run in a folder until the block ends; `say` is given its address when the run begins.

    Without a port, one that is free. Raises a ConfigError for a port that is not.
    """
    live = LiveRun(folder, lambda: say(f"live page, as long as the run goes on: {server.address}"))
    server = _open(port, live, lambda text: say(f"sfao: {text}"))
    thread = Thread(target=server.serve_forever, args=(SLEEP,), name="live page", daemon=True)
    thread.start()
    try:
        yield live
        if live.ending is None:
            live.end(Ending("done", "The command has ended"))
    except BaseException as error:
        live.end(describe_error(error))
        raise
    finally:
        live.wait_for_watchers(LINGER)
        _wake_and_shut_down(server)
        server.server_close()
        thread.join()


def _wake_and_shut_down(server: LiveServer) -> None:
    """End the loop of a server, which notices it when somebody asks."""
    closing = Thread(target=server.shutdown, daemon=True)
    closing.start()
    while closing.is_alive():
        with suppress(OSError):
            create_connection((HOST, server.server_address[1]), LINGER).close()
        closing.join(0.01)


def _open(port: int | None, live: LiveRun, complain: Callable[[str], None]) -> LiveServer:
    try:
        return LiveServer(port or 0, live, complain)
    except OSError as error:
        if port is None:
            raise
        why = "in use" if error.errno == errno.EADDRINUSE else (error.strerror or str(error)).lower()
        raise ConfigError(f"`--live-port` must be a free port, got {port}: {why}") from None
