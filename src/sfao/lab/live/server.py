"""The server of the page: loopback only, two paths, nothing but GET."""

import errno
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from socketserver import TCPServer
from threading import Thread
from typing import Any

from sfao.lab.live.live_run import Ending, LiveRun, describe_error
from sfao.lab.report.page.assets import read_asset, render_page, write_policy
from sfao.lab.run.errors import ConfigError

HOST = "127.0.0.1"
PAGE, EVENTS = "/", "/events"
#: Seconds between two states; for a client that does not read or write; for the last state to arrive; between two
#: checks for the end of the server.
BETWEEN, PATIENCE, LINGER, POLL = 1.0, 10.0, 1.0, 0.2
#: Names of this machine with any port, since ssh may forward another one. This refuses names that an attacker points
#: at this machine (DNS rebinding).
_LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)

Refusal = tuple[HTTPStatus, str]


def find_refusal(method: str, path: str, headers: Message) -> Refusal | None:
    """Return why a request is refused; None if it is not."""
    hosts = headers.get_all("Host", [])
    if len(hosts) != 1 or not _LOOPBACK.fullmatch(hosts[0]):
        return HTTPStatus.MISDIRECTED_REQUEST, "the host must be 127.0.0.1 or localhost"
    if method != "GET":
        return HTTPStatus.METHOD_NOT_ALLOWED, "the method must be GET"
    if path not in (PAGE, EVENTS):
        return HTTPStatus.NOT_FOUND, f"the path must be {PAGE} or {EVENTS}"
    if path == EVENTS and headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        return HTTPStatus.FORBIDDEN, f"{EVENTS} is for the page at {PAGE}"
    return None


def render_live_page() -> tuple[bytes, str]:
    """Return the page, which is the same for every run, and its Content-Security-Policy."""
    own = {name: (files(__package__) / name).read_text(encoding="utf-8") for name in ("live.css", "live.js")}
    style, script = read_asset("base.css") + own["live.css"], read_asset("base.js") + own["live.js"]
    template = (files(__package__) / "live.html.jinja").read_text(encoding="utf-8")
    policy = write_policy(style, script, "connect-src 'self'", "frame-ancestors 'none'")
    return render_page(template, style, script).encode(), policy


class LiveServer(ThreadingHTTPServer):
    """Serves one run, with a thread per connection."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int, live: LiveRun, complain: Callable[[str], None]) -> None:
        self.live = live
        self.page, self.policy = render_live_page()
        self._complain: Callable[[str], None] | None = complain
        super().__init__((HOST, port), _Handler)

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}"

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's asks the network for the name of this machine

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report the first error; a client that disconnects is not one."""
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | TimeoutError) and self._complain is not None:
            self._complain(f"the live page has an error, the run goes on: {type(error).__name__}: {error}")
            self._complain = None


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE
    server: LiveServer

    def parse_request(self) -> bool:
        """Parse the request, and answer it here if it is refused."""
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
        """Send the state of the run every second until it has ended."""
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
def serve_run(folder: Path, port: int | None, announce: Callable[[str], None]) -> Iterator[LiveRun]:
    """Serve the page of the run in a folder until the block ends; `announce` prints its address when the run begins.

    Without a port, a free one is used. Raises a ConfigError for a port in use.
    """
    live = LiveRun(folder, lambda: announce(f"live page, as long as the run goes on: {server.address}"))
    try:
        server = LiveServer(port or 0, live, lambda text: announce(f"sfao: {text}"))
    except OSError as error:
        if port is None:
            raise
        why = "in use" if error.errno == errno.EADDRINUSE else (error.strerror or str(error)).lower()
        raise ConfigError(f"`--live-port` must be a free port, got {port}: {why}") from None
    thread = Thread(target=server.serve_forever, args=(POLL,), name="live page", daemon=True)
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
        server.shutdown()
        server.server_close()
        thread.join()
