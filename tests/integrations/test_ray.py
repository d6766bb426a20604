"""Runs on a real Ray cluster of two nodes: the same weights, whatever is killed on the way."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest
from typer.testing import CliRunner

# Before Ray is imported: no telemetry, workers as quick as others, a secret of these tests alone.
os.environ.update(
    RAY_USAGE_STATS_ENABLED="0",
    RAY_worker_niceness="0",
    RAY_AUTH_MODE="token",
    RAY_AUTH_TOKEN=secrets.token_hex(32),
)
from ray.cluster_utils import Cluster

from sfao.lab.cli.app import app
from sfao.lab.names import name_folder
from sfao.lab.run import ray as ray_module
from sfao.lab.run.compare import compare
from sfao.lab.run.errors import ConfigError
from sfao.lab.run.jobs import Begun, Failure, Lost, plan
from sfao.lab.run.pool import run_all
from sfao.lab.run.progress import Update
from sfao.lab.run.ray import RayRunner
from sfao.lab.run.record import Record
from tests.integrations.ray_watching import Events, find_holder, hidden_node, read_steps, wait_for

COMMAND = [sys.executable, "-c", "from sfao.lab.cli.main import main; main()"]
#: A method that leaves time to disturb it, found from the root of the repository.
SLOW = "tests.integrations.slow_method:Slow"
NAME = name_folder(SLOW)
SETTINGS, RUNS = {"epochs": 3}, 3
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def cluster():
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    yield made
    made.shutdown()


def plan_runs(out, seeds=RUNS, **settings):
    return plan("split-mnist-5k", [SLOW], range(seeds), out, settings={**SETTINGS, **settings})


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The runs as the local launcher does them."""
    out = tmp_path_factory.mktemp("local")
    with chdir(ROOT):
        compare(plan_runs(out), run=run_all)
    return out


def read_results(folder):
    """What must not depend on where a run was done, nor on how often it was begun: {run: ...}."""
    found = {path.parent.name: json.loads(path.read_text()) for path in sorted(folder.glob("*/record.json"))}
    return {name: (record["status"], record["metrics"], record["weights_sha256"]) for name, record in found.items()}


def check_same(out, reference):
    results = read_results(out)
    expected = read_results(reference)
    assert results == {name: expected[name] for name in results}
    for name in results:
        files = sorted(path.name for path in (out / name).iterdir() if path.name[0] != ".")
        assert files == ["config.yaml", "record.json", "steps.jsonl"]
        assert read_steps(out / name) == read_steps(reference / name)
    assert not list(out.glob(".seen-by-nodes-*"))


def test_weights_are_those_of_the_local_launcher(cluster, reference, tmp_path):
    events = Events()
    jobs = plan_runs(tmp_path / "runs")
    records = compare(jobs, run=RayRunner(cluster.address), watch=events)
    check_same(tmp_path / "runs", reference)
    assert [record.seed for record in records] == list(range(RUNS))
    assert [record.warnings for record in records] == [[]] * RUNS
    assert {record.versions["threads"] for record in records} == {"1"}
    for job in jobs:
        own = [type(event) for name, event in events.all if name == job.folder.name]
        assert own[0] is Begun
        assert own[-1] is Record
        assert set(own[1:-1]) <= {Update}
    # And nothing is done again.
    assert compare(jobs, run=RayRunner("nowhere:1")) == records


def test_a_killed_worker_costs_its_own_run_alone(cluster, reference, tmp_path, capfd):
    def kill(job):
        holder = find_holder(job.folder)
        if holder is not None:
            os.kill(holder[0], signal.SIGKILL)
        return holder is not None

    events = Events(kill)
    records = compare(plan_runs(tmp_path / "runs"), run=RayRunner(cluster.address), watch=events)
    check_same(tmp_path / "runs", reference)
    assert capfd.readouterr() == ("", "")  # Ray itself would tell the death, on the standard output
    events.check_went_on()
    hit = int(events.acted.removeprefix(f"{NAME}-"))
    (lost,) = events.of(events.acted, Lost)
    assert lost == Lost("its worker or its node was lost", 1, 3)
    for record in records:
        assert len(record.warnings) == (record.seed == hit)
    assert "from its last checkpoint" in records[hit].warnings[0]
    assert json.loads((tmp_path / "runs" / events.acted / "record.json").read_text())["warnings"]


def test_a_lost_node_costs_the_run_that_it_was_doing(cluster, reference, tmp_path):
    node = next(iter(cluster.worker_nodes))
    raylet = node.all_processes["raylet"][0].process.pid

    def remove(job):
        holder = find_holder(job.folder)
        if holder is None or holder[1] != raylet:
            return False
        cluster.remove_node(node, allow_graceful=False)
        return True

    events = Events(remove)
    try:
        records = compare(plan_runs(tmp_path / "runs"), run=RayRunner(cluster.address), watch=events)
    finally:
        cluster.add_node(num_cpus=1)
    check_same(tmp_path / "runs", reference)
    events.check_went_on()
    for record in records:
        assert len(record.warnings) == (f"{NAME}-{record.seed}" == events.acted)


def test_a_run_that_kills_every_worker_fails_and_one_that_raises_is_not_tried_again(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_module, "RETRIES", 1)
    (tmp_path / "deadly.py").write_text(
        "import os, signal\n"
        "from sfao.lab.methods import Method\n"
        "class Deadly(Method):\n"
        "    def end_task(self, *args):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "class Raising(Method):\n"
        "    def end_task(self, *args):\n"
        "        raise ValueError('out of luck')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    events = Events()
    jobs = plan("split-mnist-5k", ["deadly:Deadly", "deadly:Raising"], [0], Path("runs"), settings={"epochs": 1})
    deadly, raising = compare(jobs, run=RayRunner(cluster.address), watch=events)
    assert (deadly.status, raising.status, raising.error) == ("failed", "failed", "ValueError: out of luck")
    assert len(events.of("deadly.Deadly-0", Lost)) == 1
    assert not events.of("deadly.Raising-0", Lost)
    assert "in end_task" in events.of("deadly.Raising-0", Failure)[0].traceback
    assert deadly.error.startswith("its worker or its node was lost 2 times: ")


def test_a_node_that_does_not_see_the_folder_of_the_runs_is_refused(cluster, tmp_path):
    with (
        hidden_node(cluster.address, tmp_path, cpus=2),
        pytest.raises(ConfigError, match="a folder that all nodes share"),
    ):
        compare(plan_runs(tmp_path / "runs", 1), run=RayRunner(cluster.address, cpus=2))
    assert not (tmp_path / "runs" / f"{NAME}-0").exists()


def test_a_node_without_the_data_is_refused_before_anything_runs(cluster, tmp_path, monkeypatch):
    modules, data = tmp_path / "modules", tmp_path / "data"
    modules.mkdir()
    data.mkdir()
    (data / "here").touch()
    (modules / "far.py").write_text(
        "from pathlib import Path\n"
        "import torch\n"
        "from torch.utils.data import TensorDataset\n"
        "def tasks():\n"
        f"    Path({str(data / 'here')!r}).read_text()\n"
        "    one = TensorDataset(torch.randn(40, 5), torch.arange(40) % 2)\n"
        "    return [(one, one), (one, one)]\n"
    )
    monkeypatch.chdir(modules)
    monkeypatch.syspath_prepend(str(modules))
    jobs = plan("far:tasks", ["sgd"], [0], tmp_path / "runs")
    with hidden_node(cluster.address, data, cpus=2), pytest.raises(ConfigError) as refused:
        compare(jobs, run=RayRunner(cluster.address, cpus=2))
    assert str(refused.value).startswith("node ")
    assert str(data / "here") in str(refused.value)
    assert "must be on every node as they are here, or in a shared folder" in str(refused.value)
    assert not (tmp_path / "runs" / f"{NAME}-0").exists()


def test_ctrl_c_on_a_ray_of_its_own(reference, tmp_path):
    """The whole group gets the signal, as in a terminal: the daemons of Ray too."""
    out = tmp_path / "runs"
    arguments = ["split-mnist-5k", "--methods", SLOW, "--seeds", str(RUNS), "--set", "epochs=3", "--out", str(out)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    environment["HOME"] = str(tmp_path)
    process = subprocess.Popen(
        [*COMMAND, "compare", *arguments, "--launcher", "ray"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=environment,
    )
    wait_for(lambda: process.poll() is not None or list(out.glob("*/checkpoint.pt")))
    os.killpg(process.pid, signal.SIGINT)
    text, error = process.communicate(timeout=300)
    lines = [line for line in error.splitlines() if "done: accuracy" not in line]
    assert (process.returncode, text) == (130, "")
    assert lines == ["sfao: interrupted; the state is saved, go on with the same command and --resume"]
    assert list(out.glob("*/checkpoint.pt"))
    assert not (tmp_path / ".ray").exists()
    compare(plan_runs(out), run=run_all, resume=True)
    check_same(out, reference)


def test_tune_on_a_cluster_in_json_alone(cluster, tmp_path):
    """Trials are asked for one after the other; a failed worker would write to standard output."""
    what = "tune split-mnist-5k --method sgd --search lr=0.01:0.1:log --trials 3 --seeds 1 --set epochs=1 --json"
    where = ["--launcher", "ray", "--address", cluster.address, "--out", str(tmp_path / "study")]
    done = CliRunner().invoke(app, [*what.split(), *where])
    assert done.exit_code == 0, done.output
    assert [trial["number"] for trial in json.loads(done.stdout)["trials"]] == [0, 1, 2]


def check_refused(address, match, tmp_path, **needs):
    with pytest.raises(ConfigError, match=match):
        compare(plan_runs(tmp_path / "runs", 1), run=RayRunner(address, **needs))
    assert not (tmp_path / "runs" / f"{NAME}-0").exists()


def test_more_than_a_node_has_is_refused(cluster, tmp_path):
    rule = "`cpus` and `gpus` must fit on one node of the cluster"
    check_refused(cluster.address, f"{rule}, got 64 and 0; its nodes have 1 and 0, 1 and 0", tmp_path, cpus=64)
    check_refused(cluster.address, f"{rule}, got 1 and 1", tmp_path, gpus=1)


def test_an_address_that_leads_nowhere_is_refused_at_once(tmp_path, monkeypatch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    check_refused(address, f"nothing answers at {address}: Connection refused; `ray start --head` starts", tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", address)
    check_refused("auto", f"nothing answers at {address}: Connection refused", tmp_path)
    check_refused("ray://head:10001", "must be auto or HOST:PORT, got 'ray://head:10001'", tmp_path)
    check_refused("head", "must be auto or HOST:PORT, got 'head'", tmp_path)


OLD_HEAD = """
import sys
import ray
ray.__version__ = "2.9.0"
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


def test_a_cluster_of_another_version_is_refused(tmp_path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", OLD_HEAD], text=True, **pipes) as head:
        address = head.stdout.readline().strip()
        try:
            check_refused(address, r"the same versions of Ray and Python.*2\.9\.0", tmp_path)
        finally:
            head.stdin.close()
            head.wait(300)
