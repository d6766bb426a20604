"""The data of the page: runs, rows and what the gate did, from which its script draws tables and charts."""

from collections.abc import Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any

import numpy as np

from sfao.decision import Decision
from sfao.lab.console import escape_controls
from sfao.lab.metrics import accuracy_when_learnt
from sfao.lab.report.comparison import flatten_settings
from sfao.lab.report.comparison_table import list_runs
from sfao.lab.report.figures import forgetting_so_far
from sfao.lab.report.gate_steps import (
    collect_steps,
    count_decisions,
    gated_rows,
    intervals_of,
    layers_of,
    task_changes,
    thresholds_of,
)
from sfao.lab.report.headline import Finding
from sfao.lab.report.runs import LoadedRun, RunGroup
from sfao.lab.report.style import color_of, pick_evenly
from sfao.lab.run.record import Record, describe_rollback

#: Digits of accuracies in matrices; the page shows three.
DIGITS = 5
#: Gates that the page draws; bins of cosines from -1 to 1.
MOST_GATES, BINS = 24, 40


def describe_group(group: RunGroup, finding: Finding) -> dict[str, Any]:
    """Return a group as plain containers whose text has no control characters."""
    settings = {run.name: _collect_settings(run.record) for own in group.runs.values() for run in own}
    shared = dict(set.intersection(*(set(own.items()) for own in settings.values())))
    uneven = [{"runs": "settings", "text": group.group.setting_mismatch}] if group.group.setting_mismatch else []
    found: dict[str, Any] = _escape(
        {
            "title": group.group.title,
            "headline": finding.headline,
            "details": finding.details,
            "caveat": group.group.caveat,
            "baseline": group.group.baseline,
            "warnings": uneven + [{"runs": list_runs(one), "text": one.text} for one in group.group.warnings],
            "rows": [
                {
                    "name": row.method,
                    "storesData": row.stores_data,
                    "isBound": row.is_bound,
                    "isTested": row.test is not None,
                    "color": color_of(row.method),
                }
                for row in group.group.rows
            ],
            "runs": [
                {
                    **_describe_run(run),
                    "row": row,
                    "own": {name: value for name, value in settings[run.name].items() if name not in shared},
                }
                for row, own in group.runs.items()
                for run in own
            ],
            "shared": dict(sorted(shared.items())),
            "gates": _describe_gates(group),
        }
    )
    return found


def _collect_settings(record: Record) -> dict[str, str]:
    return flatten_settings(record.config) | flatten_settings(record.versions, "versions.")


def _format_time(stamp: str) -> str:
    return f"{datetime.fromisoformat(stamp).astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _describe_run(run: LoadedRun) -> dict[str, Any]:
    record = run.record
    known = {
        "name": run.name,
        "method": record.method,
        "seed": record.seed,
        "status": record.status,
        "error": record.error,
        "steps": record.steps,
        "stepMs": record.step_ms,
        "seconds": record.seconds,
        "memory": record.memory_bytes,
        "metrics": {name: value for name, value in record.metrics.items() if isfinite(value)},
        "rollbacks": len(record.rollbacks) if record.config.get("guard") else None,
        "facts": _describe_details(record),
    }
    if record.status != "done":
        return known
    return known | {
        "accuracy": record.metrics["average_accuracy"],
        "forgetting": record.metrics["average_forgetting"],
        "learned": accuracy_when_learnt(record.accuracy_matrix),
        "matrix": [[round(value, DIGITS) for value in line] for line in record.accuracy_matrix],
        "forgettingSoFar": [round(value, DIGITS) for value in forgetting_so_far(record.accuracy_matrix)],
    }


def _describe_details(record: Record) -> list[tuple[str, str]]:
    """Return what belongs to one run alone."""
    counts = {kind.value: sum(layer.get(kind.value, 0) for layer in record.decisions.values()) for kind in Decision}
    total = sum(counts.values())
    decisions = ", ".join(f"{name} {count / total:.1%}" for name, count in counts.items()) if total else ""
    facts = [
        ("Error", record.error),
        ("Ended", _format_time(record.finished) if record.finished else ""),
        ("Tasks", ", ".join(record.task_names)),
        ("Decisions", decisions),
        *(("Rollback", describe_rollback(rollback).removeprefix("rollback ")) for rollback in record.rollbacks),
        ("Weights", f"SHA-256 {record.weights_sha256}" if record.weights_sha256 else ""),
    ]
    return [(name, text) for name, text in facts if text]


def _describe_gates(group: RunGroup) -> list[dict[str, Any]]:
    """Return decisions over time and a histogram of cosines per row, layer and seed."""
    gates = [(row, layer, runs) for row, runs in gated_rows(group).items() for layer in layers_of(runs)]
    found = []
    for row, layer, runs in pick_evenly(gates, MOST_GATES):
        ends = intervals_of(runs, layer)
        found.append(
            {
                "row": row,
                "layer": layer,
                "ends": ends,
                "changes": task_changes(runs[0]),
                "thresholds": thresholds_of(runs[0]),
                "seeds": {
                    run.record.seed: {
                        "decisions": count_decisions(run, layer, ends).tolist(),
                        "cosines": np.histogram(_cosines(run, layer), bins=BINS, range=(-1, 1))[0].tolist(),
                    }
                    for run in runs
                },
            }
        )
    return found


def _cosines(run: LoadedRun, layer: str) -> list[float]:
    return [step.cosine for step in collect_steps([run], layer)]


def _escape(value: Any) -> Any:
    """Return plain containers with control characters written as text."""
    if isinstance(value, str):
        return escape_controls(value)
    if isinstance(value, Mapping):
        return {_escape(name): _escape(own) for name, own in value.items()}
    return [_escape(own) for own in value] if isinstance(value, list | tuple) else value
