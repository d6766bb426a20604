"""The server of the page over real HTTP: what is answered and to whom, and how it ends."""

import json
import socket
import time
from email.message import Message
from threading import Thread

import pytest

from sfao.lab.live import server as server_module
from sfao.lab.live.live_run import describe_error
from sfao.lab.live.server import find_refusal, serve_run
from sfao.lab.run.errors import ConfigError
from sfao.lab.run.run_log import STEPS
from tests.lab.live.client import Events, ask, port_of
from tests.lab.live.held_run import PATIENCE


@pytest.fixture
def idle(tmp_path):
    """The address of a page whose run has not begun."""
    said = []
    with serve_run(tmp_path, None, said.append) as live:
        live._announce()
        yield said[0].split()[-1]


# -- Who is answered ---------------------------------------------------------------------------------------


def test_the_page_forbids_frames_and_scripts_from_elsewhere(idle):
    response, body = ask(idle)
    assert response.status == 200
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = dict(part.split(" ", 1) for part in response.headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["script-src"].startswith("'sha256-")
    assert policy["style-src"].startswith("'sha256-")
    assert response.headers["X-Frame-Options"] == "DENY"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert response.headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in response.headers
    assert response.headers["Server"] == "sfao"
    for outside in (b"http://", b"https://", b"//cdn"):
        assert outside not in body.replace(b"http://www.w3.org/2000/svg", b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "CONNECT", "TRACE", "BREW"])
def test_only_get_is_answered(idle, method):
    response, _ = ask(idle, method=method)
    assert response.status == 405
    assert response.headers["Allow"] == "GET"
    assert "frame-ancestors 'none'" in response.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    "path",
    ["/x", "/../etc/passwd", "/%2e%2e/record.json", "/events/", "/?", "/steps.jsonl", "/events?x"],
)
def test_only_its_own_paths_are_answered(idle, path):
    response, body = ask(idle, path)
    assert (response.status, body) == (404, b"404: the path must be / or /events\n")


def message(*pairs):
    made = Message()
    for name, value in pairs:
        made[name] = value
    return made


HOSTS = [
    ("127.0.0.1", True),
    ("127.0.0.1:8000", True),
    ("localhost:1", True),
    ("LOCALHOST", True),
    ("[::1]:8000", True),
    ("evil.example:8000", False),
    ("127.0.0.1.evil.example", False),
    ("localhost.evil.example:8000", False),
    ("evil.example@127.0.0.1", False),
    ("127.0.0.1:8000, evil.example", False),
    ("127.0.0.1\n", False),
    ("127.1", False),
    ("0.0.0.0", False),
    ("", False),
]


@pytest.mark.parametrize(("host", "ours"), HOSTS)
def test_foreign_hosts_are_refused(host, ours):
    refusal = find_refusal("GET", "/", message(("Host", host)))
    assert refusal is None if ours else refusal[0] == 421


def test_a_host_must_be_there_once(idle):
    assert find_refusal("GET", "/", message())[0] == 421
    assert find_refusal("GET", "/", message(("Host", "localhost"), ("Host", "localhost")))[0] == 421
    response, body = ask(idle, Host="evil.example")
    assert (response.status, body) == (421, b"421: the host must be 127.0.0.1 or localhost\n")


@pytest.mark.parametrize(("site", "status"), [("cross-site", 403), ("same-site", 403), ("same-origin", 0), ("none", 0)])
def test_a_page_from_elsewhere_gets_no_events(site, status):
    refusal = find_refusal("GET", "/events", message(("Host", "localhost"), ("Sec-Fetch-Site", site)))
    assert (refusal[0] if refusal else 0) == status
    assert find_refusal("GET", "/", message(("Host", "localhost"), ("Sec-Fetch-Site", site))) is None


@pytest.mark.parametrize(
    "request_text",
    [b"", b"\0\xff\r\n\r\n", b"GET /\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200],
)
def test_what_is_no_request_is_survived_in_silence(idle, request_text, capfd):
    with socket.create_connection(("127.0.0.1", port_of(idle)), PATIENCE) as connection:
        connection.sendall(request_text)
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert b"<h1" not in answer
    assert ask(idle)[0].status == 200
    assert capfd.readouterr() == ("", "")


def test_it_listens_on_this_machine_alone(idle):
    others = [each[4][0] for each in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    for address in {*others, "127.0.0.2"} - {"127.0.0.1"}:
        with pytest.raises(OSError, match=r"refused|unreachable"):
            socket.create_connection((address, port_of(idle)), 5).close()


# -- Ports, errors and ends --------------------------------------------------------------------------------


def test_a_busy_port_is_refused_in_a_line(idle, tmp_path):
    busy = port_of(idle)
    with pytest.raises(ConfigError) as refused, serve_run(tmp_path, busy, print):
        pass
    assert str(refused.value) == f"`--live-port` must be a free port, got {busy}: in use"


def test_every_error_ends_the_server_and_is_told_to_who_looks(tmp_path):
    said, states, readers = [], [], []

    def fail_under_the_page():
        with serve_run(tmp_path, None, said.append) as live:
            live._announce()
            events = Events(said[0].split()[-1])
            readers.append(Thread(target=lambda: states.extend(events), daemon=True))
            readers[0].start()
            raise RuntimeError("it\nbroke\x1b")

    with pytest.raises(RuntimeError, match="broke"):
        fail_under_the_page()
    readers[0].join(PATIENCE)
    assert states[-1]["ending"] == {
        "status": "failed",
        "headline": "The run failed",
        "text": "RuntimeError: it broke\\x1b",
        "command": "",
    }
    with pytest.raises(ConnectionRefusedError):
        ask(said[0].split()[-1])


def test_one_who_reads_nothing_does_not_hold_the_command_up(tmp_path, monkeypatch):
    monkeypatch.setattr(server_module, "LINGER", 0.2)
    (tmp_path / STEPS).write_text("".join(json.dumps(line) + "\n" for line in long_lines()))
    said = []
    with serve_run(tmp_path, None, said.append) as live:
        live._announce()
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            deaf.connect(("127.0.0.1", port_of(said[0])))
            deaf.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            deaf.recv(10)
            live.end(describe_error(KeyboardInterrupt()))
            began = time.monotonic()
            live.wait_for_watchers(server_module.LINGER)
    assert time.monotonic() - began < server_module.PATIENCE


def long_lines():
    layers = {f"layer{number}": dict.fromkeys(("accept", "project", "discard", "zero"), 1) for number in range(300)}
    return [{"step": n, "task": 0, "epoch": 0, "loss": 1, "decisions": layers, "gate": {}} for n in range(1, 100)]
