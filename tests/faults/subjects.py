"""Small optimizers that remember two tasks, with every kind of memory, and what must not be disturbed around them."""

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from sfao import SFAO, Gate, layer_groups
from sfao.optim._digest import digest

LOSS = nn.CrossEntropyLoss()
#: Options by the kind of memory.
MEMORIES: dict[str, dict[str, Any]] = {
    "subspace": {"memory": "subspace", "axes": 4},
    "dense directions": {"memory": "directions", "capacity": 3, "samples": 2, "accept_above": 0.9},
    "factored directions": {"storage": "factored", "capacity": 3, "admit_below": 0.99, "memory_dtype": "bfloat16"},
    "both": {"memory": "both", "capacity": 3, "axes": 4, "granularity": "global"},
}


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, affine=False), nn.ReLU(), nn.Linear(4, 3))


def make_task(number: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(number)
    return [(torch.randn(6, 5, generator=generator), torch.randint(3, (6,), generator=generator)) for _ in range(2)]


class Subject:
    """A model, its optimizer and the gate, by SFAO or in front of AdamW, with two tasks remembered."""

    def __init__(self, memory: str, kind: str = "SFAO") -> None:
        self.model = make_model()
        self.gate: Gate
        self.optimizer: torch.optim.Optimizer
        if kind == "SFAO":
            self.optimizer = SFAO(layer_groups(self.model), lr=0.1, momentum=0.9, **MEMORIES[memory])
            self.gate = self.optimizer.gate
        else:
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
            self.gate = Gate(layer_groups(self.model), **MEMORIES[memory]).attach(self.optimizer)
        for number in range(2):
            self.train(number)
            self.consolidate(number)
        self.backward(2)

    def backward(self, number: int) -> None:
        self.optimizer.zero_grad()
        inputs, targets = make_task(number)[0]
        LOSS(self.model(inputs), targets).backward()

    def train(self, number: int) -> None:
        self.backward(number)
        self.optimizer.step()

    def consolidate(self, number: int = 2) -> None:
        owner: Any = self.optimizer if isinstance(self.optimizer, SFAO) else self.gate
        owner.consolidate(self.model, make_task(number), LOSS)

    def step(self) -> None:
        self.optimizer.step()

    def remember(self) -> None:
        self.gate.remember()

    def load(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state)

    @property
    def surroundings(self) -> tuple[Any, ...]:
        """What nothing that is done to the memory may change."""
        return (
            torch.is_grad_enabled(),
            torch.is_autocast_enabled("cpu"),
            torch.get_float32_matmul_precision(),
            torch._C._len_torch_function_stack(),
            torch._C._len_torch_dispatch_stack(),
            torch._C._autograd._top_saved_tensors_default_hooks(True),
            list(warnings.filters),
            [module.training for module in self.model.modules()],
            [len(module._forward_hooks) for module in self.model.modules()],
            [parameter.requires_grad for parameter in self.model.parameters()],
            [buffer.tolist() for buffer in self.model.buffers()],
        )

    def write_memory(self) -> str:
        """Return a digest of what is remembered, with its books."""
        state = self.gate.state_dict()
        for layer in state["layers"].values():
            # Of every step, not of the memory.
            for name in ("counts", "seals", "travel", "sketch", "rule_state"):
                layer.pop(name)
            for name in ("products", "sampler"):
                layer["memory"].pop(name)
        return digest(state)


def trace_lines(work: Callable[[], object], is_ours: Callable[[str], bool], see: Callable[[str, int], None]) -> None:
    """Do work, and see every line of our files before it is done."""

    def trace(frame: Any, event: str, argument: object) -> Any:
        if not is_ours(frame.f_code.co_filename):
            return None
        if event == "line":
            see(frame.f_code.co_filename, frame.f_lineno)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)


def list_lines(work: Callable[[], object], is_ours: Callable[[str], bool]) -> list[tuple[str, int]]:
    """Return the lines of our files that work comes by."""
    lines: list[tuple[str, int]] = []
    trace_lines(work, is_ours, lambda path, line: lines.append((path, line)))
    return lines


def run_interrupted(work: Callable[[], object], place: int, is_ours: Callable[[str], bool]) -> bool:
    """Do work, with a KeyboardInterrupt at the n-th line of our files that it comes by; tell whether it came so far."""
    remaining = place

    def interrupt(path: str, line: int) -> None:
        nonlocal remaining
        remaining -= 1
        if remaining == 0:
            raise KeyboardInterrupt

    try:
        trace_lines(work, is_ours, interrupt)
    except KeyboardInterrupt:
        return True
    return False
