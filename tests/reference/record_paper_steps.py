"""Record 50 steps of the paper's optimizer for every case of `paper_cases`, bit for bit.

    python -m tests.reference.record_paper_steps

writes paper_steps.json, which test_paper_steps.py compares with. Record again only if the method itself changes, or on
a machine that rounds differently.
"""

import copy
import json
import warnings
from collections.abc import Callable, Iterable, Iterator
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
LETTERS = {"accept": "a", "project": "p", "discard": "d"}


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
    conv = nn.Conv2d(2, 3, 3, padding=1)
    return nn.Sequential(nn.Unflatten(1, (2, 3, 4)), conv, nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3))


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


def measure_squares(model: nn.Module, batch: Any) -> Tensor:
    """Return one number for each example."""
    return model(batch[0]).square().sum(1) * (1 + batch[1])


class Training:
    """The run of one case; `steps` yields the outcome of every step."""

    def __init__(self, case: Case) -> None:
        self.case, self.model = case, make_model(case, heads=1)
        self.build()
        self.stored: list[int] = []

    def build(self) -> None:
        """Make the optimizer of the case, and what consolidates: the optimizer itself, or the gate in front of it."""
        case = self.case
        groups: Any = [{**group, **case.groups.get(group["name"], {})} for group in sfao.layer_groups(self.model)]
        if case.plain_parameters:
            groups = self.model.parameters()
        if case.attach is None:
            self.optimizer = self.memory = sfao.SFAO(groups, **case.options)
        else:
            name, arguments = case.attach
            self.optimizer = getattr(torch.optim, name)(self.model.parameters(), **arguments)
            self.memory = sfao.Gate(groups, **case.options).attach(self.optimizer)

    def steps(self) -> Iterator[str]:
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
        given = (batch for batch in batches) if case.is_generator else batches
        arguments = {"objective": measure_squares} if case.has_objective else {"loss": self.loss}
        self.stored.append(self.memory.consolidate(given, model=self.model, **arguments, **case.consolidate))

    def reload(self) -> None:
        """Go on with a new model and optimizer that load the states of these."""
        weights, state = copy.deepcopy((self.model.state_dict(), self.optimizer.state_dict()))
        task = getattr(self.model, "task", 0)
        self.model = make_model(self.case)
        self.model.load_state_dict(weights)
        self.model.task = task
        self.build()
        self.optimizer.load_state_dict(state)

    def observe(self) -> str:
        """Return the decisions by layer, and a digest of `.grad` and of the weights after the step."""
        decisions = self.memory.last_decisions
        letters = "".join(LETTERS.get(decisions.get(layer, ""), "-") for layer in self.memory.counts)
        parameters = list(self.model.parameters())
        return f"{letters} {digest([p.grad for p in parameters])} {digest(parameters)}"


def digest(tensors: Iterable[Tensor | None], digits: int = 5) -> str:
    """Return the start of the SHA-256 of the bytes of tensors."""
    found = sha256()
    for tensor in tensors:
        bits = tensor if tensor is None else tensor.detach().flatten().contiguous().view(torch.uint8)
        found.update(b"none" if bits is None else bits.numpy().tobytes())
    return found.hexdigest()[:digits]


def play(case: Case) -> dict[str, Any]:
    """Return the record of a case: one line for each step, and what `consolidate` and `remember` returned."""
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # directions that span a small layer
        training = Training(case)
        return {"steps": list(training.steps()), "stored": training.stored}


def measure_rounding() -> str:
    """Return a digest of plain torch computations, different on machines that round differently."""
    torch.set_num_threads(1)
    found: list[Tensor] = []
    for name, dtype in [(name, "float32") for name in MODELS] + [("mlp", "float64"), ("mlp", "bfloat16")]:
        case = Case(model=name, dtype=dtype)
        model = make_model(case)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for inputs, targets in make_task(case, 0):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
        found += list(model.parameters())
    for kind in (torch.float32, torch.float64):
        matrix = torch.randn(12, 35, generator=torch.Generator().manual_seed(0)).to(kind)
        gram = matrix @ matrix.T
        found += [gram, matrix @ matrix[0], *torch.linalg.eigh(gram), *torch.linalg.svd(matrix, full_matrices=False)]
        found += [torch.linalg.solve(gram, matrix), torch.linalg.vector_norm(matrix)]
    return digest(found, digits=16)


if __name__ == "__main__":
    records = {name: play(case) for name, case in CASES.items()}
    RECORDS.write_text(
        json.dumps({"torch": torch.__version__, "rounding": measure_rounding(), "cases": records}, indent=0)
    )
