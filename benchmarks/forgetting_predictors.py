"""What the gate knows, against the forgetting that is then measured: how good a prediction is.

    python benchmarks/forgetting_predictors.py [--seeds 2] [--json FILE]

SFAO on split-mnist-5k, three learning rates, two values of `keep`, a fifth held out. In every interval of 50 steps,
from the second task on, each number is summed over the steps, and the accuracy measured that past tasks lost on
held-out examples. Printed: Spearman's rank correlation of the two, interval by interval, and accumulated from the
beginning of a task; and what the intervals lost that the guard's rule calls a sharp rise, and the others.
"""

import argparse
import json
import math
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from scipy.stats import spearmanr

from sfao.data.dataset import Dataset, load_dataset
from sfao.experiment.config import RunConfig, configure
from sfao.experiment.epoch_batches import epoch_batches
from sfao.experiment.evaluation import evaluate
from sfao.experiment.forgetting_watch import PredictedForgetting
from sfao.experiment.guard_config import USUAL_RISE
from sfao.experiment.record import versions
from sfao.experiment.run import Run
from sfao.streams.seeding import make_generator

EVERY = 50
CPU = torch.device("cpu")
CANDIDATES = {
    "risk": "learning rate x risk()",
    "path": "learning rate x length of the update",
    "drift": "rise of the drift, largest of the layers",
    "kept": "share kept, mean of the layers",
}


def look(run: Run, drift: float) -> dict[str, float]:
    """Return every candidate for the step just made; the largest drift was this before it."""
    optimizer = run.method.optimizer
    rate, (risk, length) = optimizer.param_groups[0]["lr"], run.method.measure_risk()
    looks = run.method.looks.values()
    return {
        "risk": rate * risk,
        "path": rate * length,
        "drift": max(look["drift"] for look in looks) - drift,
        "kept": fmean(look["kept"] for look in looks),
    }


def follow(config: RunConfig, dataset: Dataset) -> list[dict[str, Any]]:
    """Train, and return one row per interval: candidates, accumulated ones, and the loss of accuracy."""
    run = Run(config, dataset, Path())
    watch = PredictedForgetting(USUAL_RISE["predicted"], run.method)
    rows = []
    for number, task in enumerate(run.stream.tasks):
        past = run.stream.tasks[:number]
        start = before = evaluate(run.method, past, "validation", CPU)
        interval, total = dict.fromkeys(CANDIDATES, 0.0), dict.fromkeys(CANDIDATES, 0.0)
        step, drift = 0, 0.0
        for epoch in range(config.epochs):
            label = f"stream task {number}, epoch {epoch}"
            for batch in epoch_batches([task], config.batch_size, config.seed, label, CPU, 0):
                run.method.step(*batch)
                step += 1
                if not past:
                    continue
                watch.see_step()
                seen = look(run, drift)
                drift += seen["drift"]
                interval = {name: interval[name] + seen[name] for name in CANDIDATES}
                if step % EVERY == 0:
                    now = evaluate(run.method, past, "validation", CPU)
                    total = {name: total[name] + interval[name] for name in CANDIDATES}
                    lost = fmean(old - new for old, new in zip(before, now, strict=True))
                    forgotten = fmean(max(0.0, old - new) for old, new in zip(start, now, strict=True))
                    flagged = watch.find_rise() is not None
                    rows.append(
                        {"interval": interval, "total": total, "lost": lost, "forgotten": forgotten, "flagged": flagged}
                    )
                    before, interval = now, dict.fromkeys(CANDIDATES, 0.0)
        run.method.end_task(number, task, make_generator(config.seed, f"end of stream task {number}"))
    return rows


def correlate(rows: list[dict[str, Any]], name: str) -> tuple[float, float]:
    """Return the correlation interval by interval, and accumulated."""
    step = spearmanr([row["interval"][name] for row in rows], [row["lost"] for row in rows])[0]
    total = spearmanr([row["total"][name] for row in rows], [row["forgotten"] for row in rows])[0]
    return float(step), float(total)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2, help="runs of each setting (default 2)")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    asked = parser.parse_args()
    dataset = load_dataset("mnist-5k")
    groups: dict[tuple[float, float], list[dict[str, Any]]] = {}
    for rate in (0.01, 0.03, 0.1):
        for keep in (0.6, 0.85):
            for seed in range(asked.seeds):
                settings = {"lr": rate, "validation": 0.2, "options.keep": keep}
                config = configure("split-mnist-5k", "sfao", seed=seed, settings=settings)
                groups[rate, keep] = groups.get((rate, keep), []) + follow(config, dataset)
    rows = [row for group in groups.values() for row in group]
    kept: dict[str, Any] = {"seeds": asked.seeds, "machine": versions("cpu"), "intervals": len(rows)}
    print(f"{len(rows)} intervals; all together, then the range over the {len(groups)} settings")
    for name, words in CANDIDATES.items():
        whole = correlate(rows, name)
        each = [correlate(group, name) for group in groups.values()]
        ends = [(min(values), max(values)) for values in zip(*each, strict=True)]
        ranges = [f"{low:+.2f} to {high:+.2f}" for low, high in ends]
        kept[name] = {
            kind: {"all": value, "low": low, "high": high}
            for kind, value, (low, high) in zip(("interval", "accumulated"), whole, ends, strict=True)
        }
        print(f"{words:38} interval {whole[0]:+.2f} ({ranges[0]})  accumulated {whole[1]:+.2f} ({ranges[1]})")
    for flagged in (True, False):
        lost = [row["lost"] for row in rows if row["flagged"] is flagged]
        mean = fmean(lost) if lost else math.nan
        kept["flagged" if flagged else "others"] = {"intervals": len(lost), "lost": mean}
        print(f"{'flagged' if flagged else 'not flagged'}: {len(lost)} intervals, lost {mean:.3f} on average")
    if asked.json:
        asked.json.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
