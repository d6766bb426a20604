"""Record 50 steps of the paper's optimizer for every case of `paper_cases`, bit for bit.

    python -m tests.reference.record_paper_steps [CASE ...]

writes paper_steps.json, which test_paper_steps.py compares with. Record again only if the method itself changes, or on
a machine that rounds differently.

Cases that store by `remember` were recorded with version 0.1: given the same stored bits, decisions and weights have
not changed since. Two kinds of cases were recorded again, because 0.2 stores other bits on purpose. `consolidate`
computes one gradient per backward pass, where 0.1 used `vmap` (same decisions, weights within 2e-7), and draws limited
batches and single examples by index, so it draws others. The Gram matrix of a float64 model is computed at once
(differences of 1e-16).
"""

import copy
import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import sfao
from tests.reference.paper_cases import CASES, Case

RECORDS = Path(__file__).with_name("paper_steps.json")
#: Steps of each task.
STEPS = (17, 17, 16)
BATCHES, BATCH_SIZE, CLASSES = 6, 8, 3
#: Hex digits of a digest.
DIGITS = 5
LETTERS = {"accept": "a", "project": "p", "discard": "d"}

# -- The API of the package: all calls that construct and consolidate ------------------------------------


def build(case: Case, model: nn.Module) -> tuple[torch.optim.Optimizer, Any]:
    """Return the optimizer of a case, and what consolidates: the optimizer itself, or the gate in front of it."""
    groups: Any = [{**group, **case.groups.get(group["name"], {})} for group in sfao.layer_groups(model)]
    if case.plain_parameters:
        groups = model.parameters()
    if case.attach is None:
        optimizer = sfao.SFAO(groups, **case.options)
        return optimizer, optimizer
    name, arguments = case.attach
    behind = getattr(torch.optim, name)(model.parameters(), **arguments)
    return behind, sfao.Gate(groups, **case.options).attach(behind)


def consolidate(memory: Any, model: nn.Module, batches: Iterable[Any], loss: Any, **arguments: Any) -> int:
    """Store directions of a finished task; return how many."""
    stored: int = memory.consolidate(batches, loss, model=model, **arguments)
    return stored


# -- Models, tasks and objectives -------------------------------------------------------------------------


class Heads(nn.Module):
    """A shared layer and one head per task; `task` is the head in use."""

    def __init__(self, heads: int = len(STEPS)) -> None:
        super().__init__()
        self.body = nn.Linear(6, 5)
        self.heads = nn.ModuleList([nn.Linear(5, CLASSES) for _ in range(heads)])
        self.task = 0

    def forward(self, inputs: Tensor) -> Tensor:
        return self.heads[self.task](torch.tanh(self.body(inputs)))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(2, 3, batch_first=True)
        self.head = nn.Linear(3, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.gru(inputs.unflatten(1, (3, 2)))[0][:, -1])


def make_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, CLASSES))


def make_conv() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (2, 3, 4)),
        nn.Conv2d(2, 3, 3, padding=1),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(36, CLASSES),
    )


def make_dead() -> nn.Module:
    """Return a model whose first layer has gradients of zero."""
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, CLASSES))
    nn.init.constant_(model[0].bias, -100.0)
    return model


#: The number of inputs and the constructor of each model.
MODELS: dict[str, tuple[int, Callable[[], nn.Module]]] = {
    "mlp": (6, make_mlp),
    "conv": (24, make_conv),
    "gru": (6, Recurrent),
    "heads": (6, Heads),
    "dead": (6, make_dead),
}


def make_model(case: Case, heads: int = len(STEPS)) -> nn.Module:
    torch.manual_seed(0)
    model = Heads(heads) if case.add_heads else MODELS[case.model][1]()
    model = model.to(getattr(torch, case.dtype))
    return model.to(memory_format=torch.channels_last) if case.channels_last else model


def make_task(case: Case, number: int) -> list[tuple[Tensor, Tensor]]:
    """Return the batches of a task: its classes are partly those of all tasks."""
    width = MODELS[case.model][0]
    common = torch.randn(width, CLASSES, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1 + number)
    teacher = common + torch.randn(width, CLASSES, generator=generator)
    inputs = torch.randn(BATCHES, BATCH_SIZE, width, generator=generator)
    return [(batch.to(getattr(torch, case.dtype)), (batch @ teacher).argmax(1)) for batch in inputs]


def measure_margin(model: nn.Module, batch: Any) -> Tensor:
    outputs, targets = model(batch[0]), batch[1]
    return outputs.logsumexp(1).mean() - outputs[:, 0].mean() + 0.1 * (outputs.mean(1) * targets).sum()


def measure_squares(model: nn.Module, batch: Any) -> Tensor:
    """Return one number for each example."""
    return model(batch[0]).square().sum(1) * (1 + batch[1])


OBJECTIVES = {"margin": measure_margin, "squares": measure_squares}

# -- Training ---------------------------------------------------------------------------------------------


@dataclass
class Step:
    """The outcome of one step, by layer: decisions, and digests of `.grad` and of the weights after it."""

    decisions: dict[str, str]
    updates: dict[str, str]
    weights: dict[str, str]

    def pack(self, layers: list[str]) -> str:
        columns = (self.decisions, self.updates, self.weights)
        return " ".join(":".join(column.get(layer, "") for column in columns) for layer in layers)


class Training:
    """The run of one case; `steps` yields the outcome of every step."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.model = make_model(case, heads=1)
        self.optimizer, self.memory = build(case, self.model)
        self.stored: list[int] = []

    def steps(self) -> Iterator[Step]:
        case, number = self.case, 0
        for task, count in enumerate(STEPS):
            self.start_task(task)
            batches = make_task(case, task)
            for step in range(count):
                for group in self.memory.param_groups:
                    group.update(case.schedule.get(number, {}))
                self.step(*batches[step % len(batches)])
                yield self.observe()
                number += 1
                if case.remember_every and number % case.remember_every == 0:
                    self.backward(*batches[step % len(batches)])
                    self.stored.append(self.memory.remember())
                if number in case.reload_after:
                    self.reload()
            self.end_task(batches)

    def start_task(self, task: int) -> None:
        if self.case.model == "heads":
            self.model.task = task
        if self.case.add_heads and task:
            torch.manual_seed(task)
            self.model.heads.append(nn.Linear(5, CLASSES))
            group = {"params": list(self.model.heads[task].parameters()), "name": f"heads.{task}"}
            self.optimizer.add_param_group(group)
        for name, module in self.model.named_modules():
            for parameter in module.parameters(recurse=False):
                parameter.requires_grad_(name != self.case.freeze.get(task))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets) * self.case.scale

    def backward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        value = self.loss(self.model(inputs), targets)
        value.backward()
        return value

    def step(self, inputs: Tensor, targets: Tensor) -> None:
        if self.case.closure:
            self.optimizer.step(lambda: self.backward(inputs, targets))
        else:
            self.backward(inputs, targets)
            self.optimizer.step()

    def end_task(self, batches: list[tuple[Tensor, Tensor]]) -> None:
        case = self.case
        if case.remember_every:
            self.memory.end_task()
            return
        if not case.consolidates:
            self.store_gradients(batches)
            return
        arguments = dict(case.consolidate)
        if case.objective is not None:
            arguments["objective"] = OBJECTIVES[case.objective]
        loss = None if case.objective is not None else self.loss
        given = (batch for batch in batches) if case.batches == "generator" else batches
        self.stored.append(consolidate(self.memory, self.model, given, loss, **arguments))

    def store_gradients(self, batches: list[tuple[Tensor, Tensor]]) -> None:
        """Store the gradient of every batch by itself, so that all versions store the same bits."""
        self.model.eval()
        self.stored.append(0)
        for batch in batches:
            self.backward(*batch)
            self.stored[-1] += self.memory.remember()
        self.model.train()
        self.optimizer.zero_grad()
        self.memory.end_task()

    def reload(self) -> None:
        """Go on with a new model and optimizer that load the states of these."""
        weights, state = copy.deepcopy((self.model.state_dict(), self.optimizer.state_dict()))
        task = getattr(self.model, "task", 0)
        self.model = make_model(self.case)
        self.model.load_state_dict(weights)
        self.model.task = task
        self.optimizer, self.memory = build(self.case, self.model)
        self.optimizer.load_state_dict(state)

    def observe(self) -> Step:
        layers = {
            name: parameters
            for name, module in self.model.named_modules()
            if (parameters := list(module.parameters(recurse=False)))
        }
        return Step(
            {layer: LETTERS[decision] for layer, decision in self.memory.last_decisions.items()},
            {layer: digest(parameter.grad for parameter in parameters) for layer, parameters in layers.items()},
            {layer: digest(parameters) for layer, parameters in layers.items()},
        )


def digest(tensors: Iterable[Tensor | None], digits: int = DIGITS) -> str:
    """Return the start of the SHA-256 of the bytes of tensors."""
    found = sha256()
    for tensor in tensors:
        found.update(b"none" if tensor is None else as_bytes(tensor))
    return found.hexdigest()[:digits]


def as_bytes(tensor: Tensor) -> bytes:
    return tensor.detach().flatten().contiguous().view(torch.uint8).numpy().tobytes()


def play(case: Case) -> dict[str, Any]:
    """Return the record of a case.

    Keys:
        layers: names, in the order of `steps`.
        steps: for each step one line, for each layer `decision:update:weights`, digests of the last two.
        stored: the results of `consolidate` and `remember`.
        end: the bytes of all parameters after the last step.
    """
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # directions that span a small layer
        training = Training(case)
        steps = list(training.steps())
    layers = list(dict.fromkeys(layer for step in steps for layer in (*step.decisions, *step.weights)))
    end = {name: as_bytes(parameter).hex() for name, parameter in training.model.named_parameters()}
    return {"layers": layers, "steps": [step.pack(layers) for step in steps], "stored": training.stored, "end": end}


def measure_rounding() -> str:
    """Return a digest of plain torch computations, different on machines that round differently."""
    torch.set_num_threads(1)
    found = []
    for dtype in ("float32", "float64", "bfloat16", "float16"):
        for name in MODELS:
            case = Case(model=name, dtype=dtype)
            if (name, dtype) in (("gru", "float16"), ("gru", "bfloat16")):
                continue
            model = make_model(case)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for inputs, targets in make_task(case, 0):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(inputs), targets).backward()
                optimizer.step()
            found += list(model.parameters())
    for dtype in (torch.float32, torch.float64):
        matrix = torch.randn(12, 35, generator=torch.Generator().manual_seed(0)).to(dtype)
        gram = matrix @ matrix.T
        found += [gram, matrix @ matrix[0], *torch.linalg.eigh(gram), *torch.linalg.svd(matrix, full_matrices=False)]
        found += [torch.linalg.solve(gram, matrix), torch.linalg.vector_norm(matrix)]
    return digest(found, digits=16)


# -- The file ---------------------------------------------------------------------------------------------


def main(names: list[str]) -> None:
    records = json.loads(RECORDS.read_text())["cases"] if names else {}
    for name in names or CASES:
        record = play(CASES[name])
        decided = Counter(layer.partition(":")[0] for step in record["steps"] for layer in step.split(" "))
        print(f"{name:32}", dict(decided), record["stored"][:4])
        records[name] = record
    content = {"torch": torch.__version__, "rounding": measure_rounding(), "cases": records}
    RECORDS.write_text(json.dumps(content, indent=0) + "\n")
    print(f"{RECORDS}: {RECORDS.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
