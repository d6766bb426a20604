"""The accuracy of `sfao estimate`: its predictions against the measurements of `sfao bench`.

    python benchmarks/estimate_accuracy.py [--model mlp]... [--tries 3]

Each case is predicted and then measured, several times in turns, since the load of a machine changes; what counts is
the median of the ratios of predicted to measured time of a step. The bytes must agree exactly.
"""

import argparse
import statistics

import torch

from sfao.cost.cases import SUBJECTS, Case, Group, case_bytes
from sfao.cost.estimate import estimate
from sfao.cost.measuring import Effort
from sfao.cost.results import load, measure_group
from sfao.cost.training import Setting
from sfao.gating.storage import Storage

CLAIM = 1.25
MOST_BYTES = 10**9
SAMPLES = 10
STORAGES = (Storage("dense", 1, "float32"), Storage("factored", 1, "float32"), Storage("factored", 4, "float32"))


def list_cases(model: str, axes: list[int], directions: list[int]) -> list[Case]:
    """Return the cases of a model that hold no more than they may."""
    cases = [Case(model, axes=count) for count in axes]
    cases += [Case(model, count, storage, SAMPLES) for count in directions for storage in STORAGES]
    return [case for case in cases if case_bytes(case) <= MOST_BYTES]


def predict_and_measure(case: Case, setting: Setting, effort: Effort) -> tuple[float, float]:
    """Return predicted and measured milliseconds of a step; raise a ValueError when the bytes differ."""
    if case.storage is None:
        options = {"axes": case.axes}
    else:
        options = {"capacity": case.directions, "samples": case.samples, **case.storage.options}
    predicted = estimate(SUBJECTS[case.model], options, None, setting)
    _, measured = measure_group(Group("", (Case(case.model), case)), setting, effort)
    if (predicted.memory_bytes, predicted.workspace_bytes) != (measured.memory_bytes, measured.workspace_bytes):
        raise ValueError(f"{predicted.memory_bytes} bytes predicted, {measured.memory_bytes} held")
    return predicted.step_ms, measured.ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", choices=list(SUBJECTS), help="default: mlp and cnn")
    parser.add_argument("--axes", type=int, nargs="*", default=[50, 200])
    parser.add_argument("--directions", type=int, nargs="*", default=[50, 200])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--tries", type=int, default=3)
    arguments = parser.parse_args()
    setting = Setting(torch.device(arguments.device), arguments.batch_size)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {setting}, load {load()}")
    print(f"{'':60}{'predicted':>10}{'measured':>10}{'ratio':>7}")
    ratios = []
    for model in arguments.model or ["mlp", "cnn"]:
        for case in list_cases(model, arguments.axes, arguments.directions):
            tries = [predict_and_measure(case, setting, Effort(seconds=1.5)) for _ in range(arguments.tries)]
            predicted, measured = (statistics.median(column) for column in zip(*tries, strict=True))
            ratios.append(statistics.median(one / other for one, other in tries))
            print(f"{case!s:60}{predicted:10.2f}{measured:10.2f}{ratios[-1]:7.2f}", flush=True)
    within = sum(1 / CLAIM <= ratio <= CLAIM for ratio in ratios)
    print(f"{within} of {len(ratios)} within 25 %, load {load()}")


if __name__ == "__main__":
    main()
