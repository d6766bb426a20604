"""Which jobs can share a stack, and what stands against it for the others."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from sfao.experiment.config import RunConfig
from sfao.experiment.errors import ConfigError
from sfao.experiment.run import Run
from sfao.experiment.worker import Job
from sfao.methods.stacked import STACKED
from sfao.methods.stacked.models import StackedModels, find_random_module

#: Settings in which the runs of a stack may differ, beside the options that their method names.
VARYING = ("seed", "lr", "momentum", "weight_decay")
#: The most runs in one stack: beyond, each costs as much as the one before.
LARGEST = 128


@dataclass
class Division:
    """The stacks of some jobs, and the jobs that are run on their own, by the reason."""

    stacks: list[list[Job]] = field(default_factory=list)
    others: dict[str, list[Job]] = field(default_factory=dict)

    def leave_out(self, jobs: Iterable[Job], reason: str) -> None:
        self.others.setdefault(reason, []).extend(jobs)


def divide(jobs: Sequence[Job]) -> Division:
    """Return the jobs that can share a stack by their settings, two at least and at most `LARGEST` in each."""
    found, alike = Division(), dict[str, list[Job]]()
    for job in jobs:
        obstacle = find_obstacle(job.config)
        if obstacle is None:
            alike.setdefault(describe_kind(job.config), []).append(job)
        else:
            found.leave_out([job], obstacle)
    for group in alike.values():
        if len(group) == 1:
            found.leave_out(group, "no other run here can share a stack with it")
            continue
        count = -(-len(group) // LARGEST)  # of about equal size
        found.stacks += [group[number::count] for number in range(count)]
    return found


def check_any_stack(jobs: Sequence[Job]) -> None:
    """Raise a ConfigError if no two of the jobs can share a stack."""
    found = divide(jobs)
    if not found.stacks:
        reason, alone = next(iter(found.others.items()))
        raise ConfigError(f"`--stack` needs runs that can share a stack, got none: {alone[0].folder.name}: {reason}")


def find_obstacle(config: RunConfig) -> str | None:
    """Return why a run cannot be stacked, by its settings alone; None when it can."""
    if config.method not in STACKED:
        return f"{config.method} has no stacked form ({', '.join(STACKED)} have)"
    if config.guard is not None:
        return "a run with a guard goes back on its own"
    return STACKED[config.method].find_obstacle(config.method_options)


def describe_kind(config: RunConfig) -> str:
    """Return the settings that the runs of a stack have in common."""
    settings: dict[str, Any] = config.model_dump(mode="json", exclude=set(VARYING))
    varying = STACKED[config.method].varying
    options = {name: value for name, value in settings["options"].items() if name not in varying}
    return json.dumps({**settings, "options": options}, sort_keys=True)


def find_model_obstacle(run: Run) -> str | None:
    """Return why models like this run's cannot be stacked; None when they can. Nothing of the run changes."""
    random = find_random_module(run.model)
    if random is not None:
        return f"the model draws random numbers ({random}), which the runs of a stack would share"
    task = run.stream.tasks[0]
    inputs, targets = next(task.train.batches(2, device=run.device))
    models = StackedModels([run.model, run.model])
    try:
        models.take_gradients(torch.stack([inputs] * 2), torch.stack([targets] * 2), task.outputs)
    except Exception as error:  # a model of one's own may fail in any way
        said = " ".join(str(error).split())[:150]
        return f"the model cannot be stacked ({type(error).__name__}: {said})"
    return None
