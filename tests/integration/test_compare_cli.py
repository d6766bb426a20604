"""`sfao compare` as a user types it: killed, interrupted, resumed."""

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfao.lab.run.checkpoint import load_checkpoint
from tests.command import Command

SETTINGS = ["--set", "epochs=4", "--set", "joint:epochs=1", "--methods", "sgd,joint", "--seeds", "2"]


def start(*arguments, command="compare", new_session=True):
    """Start a command to be killed or interrupted: its workers are its own, in a session of their own."""
    return Command(command, "split-mnist-5k", *arguments, new_session=new_session)


def finish(process):
    out, error = process.communicate()
    return process.returncode, out, error


def compare(*arguments, command="compare"):
    """Run a command that nothing disturbs."""
    return finish(start(*arguments, command=command, new_session=False))


def results(folder):
    """What must not depend on how often a run was interrupted."""
    records = {path.parent.name: json.loads(path.read_text()) for path in folder.glob("*/record.json")}
    return {name: (record["metrics"], record["weights_sha256"]) for name, record in records.items()}


def wait_for(what, seconds=300):
    until = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)
    return found


def children(process):
    """Its workers, by what they hold open: {pid: names of run folders}."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "stat").read_text().rsplit(")")[-1].split()[1] == str(process.pid):
                links = [os.readlink(link) for link in (entry / "fd").iterdir()]
                found[int(entry.name)] = [Path(link).parent.name for link in links if link.endswith("/.lock")]
        except OSError:
            continue
    return found


def worker_of(process, name):
    return next((pid for pid, runs in children(process).items() if name in runs), None)


def holder_of(folder):
    """The process that holds the lock of a run, whoever started it."""
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and str(folder / ".lock") in map(os.readlink, (entry / "fd").iterdir()):
                return int(entry.name)
    return None


def steps_saved(folder):
    return load_checkpoint(folder).state["position"]["steps"]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """A comparison that nothing disturbs."""
    out = tmp_path_factory.mktemp("reference") / "runs"
    code, text, error = compare(*SETTINGS, "--out", out)
    assert code == 0, error
    return out, text, error


def test_it_ends_in_a_table_and_the_paths_of_what_it_wrote(reference):
    out, text, error = reference
    rows = [line.split()[:3] for line in text.splitlines()]
    assert ["sgd", "2"] in [row[:2] for row in rows]
    assert ["joint", "2"] in [row[:2] for row in rows]
    assert f"{out}/comparison.json" in text.splitlines()
    assert sorted(path.name for path in out.iterdir() if path.name[0] != ".") == [
        "comparison.json", "comparison.md", "joint-0", "joint-1", "sgd-0", "sgd-1",
    ]  # fmt: skip
    assert "warning: methods differ in epochs: 4 (sgd), 1 (joint)" in text.splitlines()
    assert error.count("done: accuracy") == 4
    assert "Traceback" not in error
    assert not list(out.glob("*/checkpoint*"))
    assert {json.loads(path.read_text())["versions"]["threads"] for path in out.glob("*/record.json")} == {"1"}


def test_finished_runs_are_skipped_and_json_is_all_that_is_printed(reference):
    out, _, _ = reference
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/*")}
    code, text, error = compare(*SETTINGS, "--out", out, "--json")
    assert (code, error) == (0, "")
    summary = json.loads(text)
    assert summary == json.loads((out / "comparison.json").read_text())
    assert [run["status"] for run in summary["runs"]] == ["done"] * 4
    assert {path: path.stat().st_mtime_ns for path in out.glob("*/*")} == before


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds the workers in /proc")
def test_a_worker_killed_and_a_run_diverged_leave_the_others_alone(reference, tmp_path):
    arguments = [*SETTINGS, "--out", tmp_path / "runs", "--set", "joint:lr=1e30"]
    process = start(*arguments, new_session=False)
    os.kill(wait_for(lambda: holder_of(tmp_path / "runs" / "sgd-0")), signal.SIGKILL)
    code, text, error = finish(process)
    assert code == 1
    assert "sgd seed 0: failed: its process was killed by SIGKILL (kill -9, or out of memory)" in error
    assert "sfao: 3 of 4 runs failed or diverged; sgd seed 0 on split-mnist-5k failed: its process" in error
    assert "Traceback" not in error
    assert "1 failed" in text
    assert "2 diverged" in text
    undisturbed = results(reference[0])
    assert results(tmp_path / "runs")["sgd-1"] == undisturbed["sgd-1"]
    code, text, error = compare(*arguments)
    assert (code, error.count("skipped")) == (1, 3)
    assert results(tmp_path / "runs")["sgd-0"] == undisturbed["sgd-0"]


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds the workers in /proc")
def test_killed_then_interrupted_then_resumed_it_ends_as_if_nothing_had_happened(reference, tmp_path):
    out = tmp_path / "runs"
    process = start(*SETTINGS, "--out", out)
    wait_for(lambda: worker_of(process, "sgd-0"))
    workers = children(process)
    process.kill()
    process.communicate(timeout=60)
    # Nobody survives the parent, and the run saves its state on the way out.
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
    steps = steps_saved(out / "sgd-0")
    assert steps > 0

    process = start(*SETTINGS, "--out", out, "--resume")
    wait_for(lambda: worker_of(process, "sgd-0"))
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them at once
    code, text, error = finish(process)
    assert (code, text) == (130, "")
    assert error.splitlines()[-1] == ("sfao: interrupted; the state is saved, go on with the same command and --resume")
    assert "Traceback" not in error
    assert not (out / "comparison.json").exists()
    assert steps_saved(out / "sgd-0") > steps

    code, text, error = compare(*SETTINGS, "--out", out, "--resume", "--quiet")
    assert (code, text, error) == (0, "", "")
    assert results(out) == results(reference[0])
    assert len(results(out)) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["split-mnist-5k", "--methods", "sgd,jiont"], "got 'jiont' (did you mean 'joint'?)"),
        (["split-mnist-5k", "--methods", "sgd,sgd"], "`methods` must name each one once, got 'sgd' twice"),
        (["split-mnist-5k", "--methods", "sgd", "--seeds", "none"], "`seeds` must be how many"),
        (["split-mnist-5k", "--methods", "sgd", "--set", "sgdd:lr=1"], "must be one of sgd, got 'sgdd'"),
        (["split-mnist-5k", "--methods", "sgd", "--set", "tasks=3"], "`tasks` must divide the 10 classes"),
        (["split-cifar10", "--methods", "sgd", "--data-root", "."], "Get it with: sfao data get cifar10"),
        (["split-mnist-5k", "--methods", "sgd", "--jobs", "0"], "--jobs"),
        (["split-mnist-5k"], "--methods"),
    ],
)
def test_bad_input_is_told_in_a_line_or_two_and_writes_nothing(arguments, message, tmp_path, monkeypatch):
    from sfao.lab.cli.app import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    result = CliRunner().invoke(app, ["compare", *arguments, "--out", "runs"])
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def small_demo(tmp_path, monkeypatch):
    """A demo of two methods on a slice of the data, and the pages that it would open."""
    from sfao.lab.cli import demo
    from sfao.lab.cli.app import app

    opened = []
    monkeypatch.setattr(demo, "list_methods", lambda: ("sgd", "gem"))
    monkeypatch.setattr(demo, "show_page", opened.append)

    def run(*arguments):
        return CliRunner().invoke(app, ["demo", "--quick", "--out", str(tmp_path / "demo"), *arguments])

    return run, tmp_path / "demo", opened


def test_the_demo_ends_in_the_finding_the_table_and_the_report_and_skips_what_is_finished(small_demo):
    run, out, opened = small_demo
    page = out / "report" / "report.html"
    for arguments, said in (((), "done: accuracy"), (("--no-open",), "skipped: finished before")):
        result = run(*arguments)
        assert result.exit_code == 0, result.stderr
        assert said in result.stderr
        lines = result.stdout.splitlines()
        assert lines[0].startswith("sgd reaches an accuracy of ")
        assert "Not ranked, as they store data, which counts as held: gem." in lines
        assert lines[-1] == str(page)
    assert opened == [page]
    summary = json.loads(run("--json").stdout)
    assert summary["report"] == str(page)
    assert summary["finding"].startswith("sgd reaches an accuracy of ")
    assert [row["stores_data"] for row in summary["groups"][0]["rows"]] == [False, True]
    assert opened == [page]


@pytest.mark.parametrize(
    ("environment", "platform", "is_terminal", "expected"),
    [
        ({"DISPLAY": ":0"}, "linux", True, True),
        ({}, "darwin", True, True),
        ({}, "linux", True, False),
        ({"DISPLAY": ":0"}, "linux", False, False),
        ({"DISPLAY": ":0", "CI": "true"}, "linux", True, False),
        ({"SSH_CONNECTION": "a b c d"}, "darwin", True, False),
    ],
)
def test_a_page_is_opened_where_somebody_sees_it(environment, platform, is_terminal, expected):
    from sfao.lab.cli.demo import has_screen

    assert has_screen(environment, platform, is_terminal) == expected
