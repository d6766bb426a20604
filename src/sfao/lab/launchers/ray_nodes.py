"""The nodes of a cluster before anything runs: each must have the software, the modules and the data of the runs."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sfao.lab.launchers.ray_cluster import Node, import_ray
from sfao.lab.launchers.ray_task import NodeReport, Terms, inspect_node, list_versions, make_absolute
from sfao.lab.run.errors import ConfigError
from sfao.lab.run.record import describe_dataset, is_same_data
from sfao.lab.run.worker import Job
from sfao.lab.streams.suite import BENCHMARKS

MARK = ".seen-by-nodes-"


@contextmanager
def mark_folders(jobs: Sequence[Job]) -> Iterator[str]:
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


def check_nodes(nodes: Sequence[Node], jobs: Sequence[Job], terms: Terms) -> bool:
    """Refuse a cluster with a node that cannot take these runs; tell whether all nodes see the folders of the runs."""
    kinds = {(job.config.benchmark, job.config.method, job.config.model.name, job.folder.parent): job for job in jobs}
    asked = _ask_nodes(nodes, [make_absolute(job) for job in kinds.values()], terms)
    data = {name: describe_dataset(BENCHMARKS[name].load(terms.data_root)) for name, *_ in kinds}
    reports = _collect_reports(asked)
    for node, report in reports:
        _check_report(node, report, data)
    return all(report.shared for _, report in reports)


def _ask_nodes(nodes: Sequence[Node], jobs: Sequence[Job], terms: Terms) -> dict[Node, Any]:
    """Let all nodes inspect themselves at once; return {node: the reference of its report}."""
    inspect = import_ray().remote(inspect_node)
    return {
        node: inspect.options(**terms.options, num_cpus=0, scheduling_strategy=_stay_on(node)).remote(jobs, terms)
        for node in nodes
    }


def _collect_reports(asked: dict[Node, Any]) -> list[tuple[Node, NodeReport]]:
    """Wait for the reports; a node that is lost meanwhile has none."""
    ray = import_ray()
    reports = []
    for node, answer in asked.items():
        try:
            reports.append((node, ray.get(answer)))
        except (ray.exceptions.RayTaskError, ray.exceptions.RuntimeEnvSetupError) as error:
            said = str(error).strip().splitlines()[-1][:200]
            raise ConfigError(
                f"node {node.name} must have sfao[lab,ray] as this machine has it, but it cannot run it: {said}"
            ) from error
        except ray.exceptions.RayError:
            continue  # runs that are sent there are sent elsewhere in turn
    return reports


def _stay_on(node: Node) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node.id, soft=False)


def _check_report(node: Node, report: NodeReport, data: dict[str, dict[str, Any]]) -> None:
    """Raise a ConfigError that names the node, what it lacks, and what helps."""
    for name, here in list_versions().items():
        if report.versions[name] != here:
            raise ConfigError(
                f"node {node.name} must have {name} {here} as this machine has, but it has {report.versions[name]}: "
                "weights would depend on the node"
            )
    if report.trouble:
        raise ConfigError(
            f"node {node.name} cannot take these runs: {report.trouble}; "
            "the modules and the data of a run must be on every node as they are here, or in a shared folder"
        )
    for name, ours in data.items():
        if not is_same_data(report.data[name], ours):
            raise ConfigError(
                f"node {node.name} must have the data of {name} as this machine has them, {ours}, got "
                f"{report.data[name]}; copy them there, or let --data-root name a shared folder"
            )
