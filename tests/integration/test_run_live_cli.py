"""`sfao run --live` as a user types it."""

import json
import re
import signal
import socket
import time
from http.client import HTTPConnection

import pytest
from typer.testing import CliRunner

from sfao.lab.cli.app import app
from tests.command import Command
from tests.faults.tiny import NAME

PATIENCE = 60.0
TINY = ["run", NAME, "--method", "sfao", "--live", "--set", "batch_size=2", "--set", "epochs=6"]


@pytest.fixture
def port():
    """A port that was free a moment ago."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@pytest.fixture
def busy_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_the_address_is_an_error_line_and_a_finished_run_has_none(tmp_path):
    command = [*TINY, "--out", str(tmp_path / "run"), "--quiet"]
    done = CliRunner().invoke(app, command)
    assert (done.exit_code, done.stdout) == (0, "")
    assert re.fullmatch(r"live page, as long as the run goes on: http://127\.0\.0\.1:\d+\n", done.stderr)
    again = CliRunner().invoke(app, [*command[:-1], "--json"])
    assert (again.exit_code, again.stderr, json.loads(again.stdout)["ran"]) == (0, "", False)


def test_a_busy_port_is_refused_before_anything_is_done(tmp_path, busy_port):
    done = CliRunner().invoke(app, [*TINY, "--live-port", str(busy_port), "--out", str(tmp_path / "run")])
    assert done.exit_code == 2
    assert done.stderr == f"sfao: `--live-port` must be a free port, got {busy_port}: in use\n"
    assert not (tmp_path / "run").exists()


def test_a_port_alone_and_one_that_is_none_are_refused(tmp_path):
    without = [argument for argument in TINY if argument != "--live"]
    done = CliRunner().invoke(app, [*without, "--live-port", "8000", "--out", str(tmp_path / "run")])
    assert (done.exit_code, done.stderr) == (2, "sfao: `--live-port` needs --live, got 8000 without it\n")
    assert CliRunner().invoke(app, [*TINY, "--live-port", "70000", "--out", str(tmp_path / "run")]).exit_code == 2
    assert not (tmp_path / "run").exists()


def test_an_error_ends_the_page_and_the_command(tmp_path, port):
    bad = [*TINY, "--live-port", str(port), "--set", "tasks=7", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, bad)
    assert done.exit_code == 2
    assert "live page" not in done.stderr
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), PATIENCE).close()


def test_ctrl_c_ends_the_page_with_the_command_and_who_looks_is_told(tmp_path, port):
    command = ["run", "split-mnist-5k", "--method", "sfao", "--live", "--live-port", port, "--threads", "1"]
    process = Command(*command, "--set", "epochs=100", "--quiet", "--out", "run", cwd=tmp_path)
    states = read_states(port, process)
    next(state for state in states if state["history"]["buckets"])
    process.send_signal(signal.SIGINT)
    *_, last = states
    out, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    assert len(errors.splitlines()) == 2
    assert last["ending"]["text"] in errors
    assert last["ending"]["status"] == "interrupted"


def read_states(port, process):
    """Yield the states of a page that will be there soon, until the last."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        assert process.poll() is None, process.communicate()
        try:
            connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            connection.request("GET", "/events")
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    for line in connection.getresponse():
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))
