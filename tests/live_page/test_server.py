"""The page of a run over real HTTP: what is answered, to whom, and what a run under it leaves."""

import json
import socket
import time
from email.message import Message
from http.client import HTTPConnection, HTTPResponse
from math import inf
from threading import Thread

import pytest
import torch

from sfao.experiment.errors import ConfigError, Interrupted
from sfao.experiment.telemetry import STEPS
from sfao.live_page import live_run as live_run_module
from sfao.live_page import server as server_module
from sfao.live_page.live_run import describe_error
from sfao.live_page.server import find_refusal, serve_run
from tests.live_page.held_run import PATIENCE, held_run, run_unwatched


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def ask(address: str, path: str = "/", method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", port_of(address), timeout=PATIENCE)
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    return response, response.read()


class Events:
    """The states that a page gets."""

    def __init__(self, address: str) -> None:
        self.connection = HTTPConnection("127.0.0.1", port_of(address), timeout=PATIENCE)
        self.connection.request("GET", "/events")
        self.response = self.connection.getresponse()

    def __iter__(self):
        for line in self.response:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))

    def wait_for(self, condition) -> dict:
        return next(state for state in self if condition(state))


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """States follow each other faster than a reader would want them."""
    monkeypatch.setattr(server_module, "BETWEEN", 0.05)
    monkeypatch.setattr(live_run_module, "REFRESH", 0.0)


@pytest.fixture
def idle(tmp_path):
    """The address of a page whose run has not begun."""
    said = []
    with serve_run(tmp_path, None, said.append) as live:
        live._tell()
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


def test_more_connections_than_it_takes_are_closed(tmp_path, monkeypatch):
    monkeypatch.setattr(server_module, "MOST_CONNECTIONS", 2)
    said = []
    with serve_run(tmp_path, None, said.append) as live:
        live._tell()
        place = ("127.0.0.1", port_of(said[0]))
        first, second, one_more = (socket.create_connection(place, PATIENCE) for _ in range(3))
        assert one_more.recv(1) == b""
        for each in (first, second, one_more):
            each.close()
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            try:
                assert ask(said[0])[0].status == 200
                return
            except ConnectionError:  # not all of them are noticed to be gone yet
                time.sleep(0.01)
        pytest.fail("the connections stayed taken")


# -- Ports, errors and ends --------------------------------------------------------------------------------


def test_a_busy_port_is_refused_in_a_line(idle, tmp_path):
    busy = port_of(idle)
    with pytest.raises(ConfigError) as refused, serve_run(tmp_path, busy, print):
        pass
    assert str(refused.value) == f"`--live-port` must be a free port, got {busy}: in use"


def test_the_port_is_free_again_at_once(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    for _ in range(2):
        with serve_run(tmp_path, port, print):
            assert ask(f"http://127.0.0.1:{port}")[0].status == 200


def test_an_error_in_the_server_is_said_once_and_leaves_the_run_alone(tmp_path, monkeypatch):
    said = []
    with serve_run(tmp_path, None, said.append) as live:
        live._tell()
        monkeypatch.setattr(live, "_write", lambda: 1 / 0)
        for _ in range(2):
            assert list(Events(said[0].split()[-1])) == []
    assert said[1:] == ["sfao: the live page has an error, the run goes on: ZeroDivisionError: division by zero"]


def test_every_error_ends_the_server_and_is_told_to_who_looks(tmp_path):
    said, states, readers = [], [], []

    def fail_under_the_page():
        with serve_run(tmp_path, None, said.append) as live:
            live._tell()
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
        live._tell()
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


# -- A real run ----------------------------------------------------------------------------------------------


def test_a_run_is_watched_from_its_first_steps_to_its_end_and_is_the_same(tmp_path):
    with held_run(tmp_path / "run") as held:
        events = Events(held.address)
        first = next(iter(events))
        assert (first["title"], first["place"]) == ("sfao on split-mnist-5k, seed 0", "Task 1 of 2, epoch 1 of 4")
        assert (first["step"], first["steps"], first["rows"], first["summary"]) == (1, 128, [], {})
        assert first["history"]["stretches"] == []
        held.go_to(40)
        state = events.wait_for(lambda state: len(state["history"]["stretches"]) == 2)
        assert [stretch[0] for stretch in state["history"]["stretches"]] == [20, 40]
        assert "left" in state["time"]
        held.go_to(100)
        state = events.wait_for(lambda state: len(state["history"]["stretches"]) == 5 and state["step"] == 100)
        assert (len(state["rows"]), state["place"]) == (1, "Task 2 of 2, epoch 3 of 4")
        assert state["summary"]["accuracy"] == state["rows"][0][0]
        assert state["history"]["taskEnds"] == [60]
        assert state["history"]["layers"] == ["hidden1", "classifier"]
        last = state["history"]["stretches"][-1]
        assert all(sum(layer[:4]) == 100 and layer[1] > 0 and 0 < layer[4] < 1 for layer in last[4])
        held.go_to(inf)
        *_, end = events
    assert end["ending"]["status"] == "done"
    assert end["ending"]["command"] == f"sfao report {tmp_path / 'run'}"
    assert end["rows"] == held.record.accuracy_matrix
    assert (end["step"], end["place"]) == (128, "All 2 tasks learnt")
    assert "left" not in end["time"]
    alone = run_unwatched(tmp_path / "alone")
    for name in ("weights_sha256", "steps_sha256", "accuracy_matrix", "decisions"):
        assert getattr(alone, name) == getattr(held.record, name)


def test_a_resumed_run_shows_the_earlier_part_too(tmp_path):
    with held_run(tmp_path / "run") as held:
        held.go_to(90)
        events = Events(held.address)
        next(iter(events))
        held.stop()
        *_, stopped = events
    assert isinstance(held.error, Interrupted)
    assert stopped["ending"]["status"] == "interrupted"
    assert "--resume" in stopped["ending"]["text"]
    with held_run(tmp_path / "run", resume=True) as again:
        state = next(iter(Events(again.address)))
        assert (state["step"], len(state["rows"])) == (91, 1)
        assert [stretch[0] for stretch in state["history"]["stretches"]] == [20, 40, 60, 80]
    assert again.record.status == "done"


def test_a_method_without_a_gate_has_a_history_without_layers(tmp_path):
    with held_run(tmp_path / "run", "sgd", first=40) as held:
        state = next(iter(Events(held.address)))
        assert state["history"]["layers"] == []
        assert [stretch[3] is not None for stretch in state["history"]["stretches"]] == [True, True]


def test_lines_that_a_rollback_cut_are_gone_and_the_rollback_is_told(tmp_path):
    guard = {"guard.kind": "measured", "guard.rise": 1e-4, "guard.every": 10, "guard.rollbacks": 1, "validation": 0.2}
    with held_run(tmp_path / "run", "sgd", first=10, lr=0.3, **guard) as held:
        events = Events(held.address)
        next(iter(events))
        held.go_to(inf)
        *_, end = events
    assert len(held.record.rollbacks) == 1
    steps = [json.loads(line)["step"] for line in (tmp_path / "run" / STEPS).read_text().splitlines()]
    assert [stretch[0] for stretch in end["history"]["stretches"]] == steps
    assert "rollback in task 2" in end["notices"][0]


def test_a_diverged_run_says_so(tmp_path):
    with held_run(tmp_path / "run", "sgd", first=1, lr=1e30) as held:
        events = Events(held.address)
        held.go_to(inf)
        *_, end = events
    assert (end["ending"]["status"], end["ending"]["headline"]) == ("diverged", "The run diverged")
    assert end["ending"]["text"] == held.record.error


def test_telemetry_that_cannot_be_read_is_told_and_the_run_goes_on(tmp_path):
    with held_run(tmp_path / "run", first=20) as held:
        with open(tmp_path / "run" / STEPS, "a") as file:
            file.write("{}\n[1]\nno JSON\n")
        state = next(iter(Events(held.address)))
        assert state["notices"] == [f"a line of {STEPS} is damaged; this page leaves it out"]
        assert len(state["history"]["stretches"]) == 1
    assert held.record.status == "done"


def test_the_random_numbers_of_the_command_are_left_alone(tmp_path):
    before = torch.get_rng_state()
    with serve_run(tmp_path, None, lambda text: None) as live:
        live.as_json()
    assert torch.equal(before, torch.get_rng_state())
