"""Compile every kernel for a GPU, as the gate would launch it; needs none. Run as a module, where nothing interprets.

python -m tests.gating.device.compiling 80 90     for these compute capabilities; prints the names of the kernels
"""

import sys
from inspect import signature
from unittest.mock import patch

import torch
import triton
from torch import nn
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.compiler import make_backend
from triton.runtime.jit import JITFunction, create_function_from_signature

import sfao
from sfao.cost.filling import fill_memory
from sfao.gating._device import entry_kernels, kernels, layer_kernels
from sfao.gating._device.engine import DeviceGate, Member
from sfao.gating.rule import Rule
from sfao.gating.rules import RULES

TYPES = {
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.bfloat16: "bf16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.bool: "i1",
}
#: Options of a launch, not arguments of a kernel.
OPTIONS = ("num_warps", "num_stages", "grid", "warmup")


class Recorder:
    """Takes launches instead of a GPU, and leaves everything as it was."""

    def __init__(self) -> None:
        self.launches: dict[str, tuple[JITFunction, dict[str, object], dict[str, object]]] = {}

    def launch(self, kernel: JITFunction, *args: object, **kwargs: object) -> None:
        options = {name: kwargs.pop(name) for name in OPTIONS if name in kwargs}
        given = signature(kernel.fn).bind(*args, **kwargs).arguments
        kinds = {
            name: kind_of(value, kernel.params[place].is_constexpr) for place, (name, value) in enumerate(given.items())
        }
        self.launches[f"{kernel.fn.__name__} {id(kernel)} {sorted(map(str, kinds.values()))} {options}"] = (
            kernel,
            given,
            options,
        )

    def compile(self, capability: int) -> set[str]:
        for kernel, given, options in self.launches.values():
            kinds = {p.name: kind_of(given[p.name], p.is_constexpr) for p in kernel.params}
            constants = {p.name: given[p.name] for p in kernel.params if p.is_constexpr}
            chosen = {name: options[name] for name in ("num_warps", "num_stages") if name in options}
            source = ASTSource(fn=kernel, signature=kinds, constexprs=constants)
            target = GPUTarget("cuda", capability, 32)
            triton.compile(source, target=target, options=chosen)
            # A launch first binds its arguments, by a function whose own names those of a kernel must not be.
            create_function_from_signature(kernel.signature, kernel.params, make_backend(target))
        return {kernel.fn.__name__ for kernel, _, _ in self.launches.values()}


def kind_of(value: object, is_constant: bool) -> str:
    if is_constant:
        return "constexpr"
    if isinstance(value, torch.Tensor):
        return f"*{TYPES[value.dtype]}"
    return "i64" if isinstance(value, int) and value >= 2**31 else "i32"


def run_gate(**options: object) -> None:
    """A step of a gate over layers of every kind of piece."""
    model = nn.ModuleList([nn.Linear(40, 30), nn.Conv2d(16, 32, 3, bias=False), nn.BatchNorm2d(8), nn.Linear(4, 4)])
    optimizer = sfao.SFAO(sfao.layer_groups(model), capacity=20, **options)
    for layer in optimizer.gate.layers[:-1]:
        fill_memory(layer.memory, 20, torch.device("cpu"))
    gradients = [
        [torch.randn_like(p).flatten(1) if p.ndim > 1 else torch.randn(1, len(p)) for p in layer.parameters]
        for layer in optimizer.gate.layers
    ]
    members = [
        Member(layer.memory, layer.options, layer.rule, layer.rule_state, of_layer)
        for layer, of_layer in zip(optimizer.gate.layers, gradients, strict=True)
    ]
    DeviceGate(members).run()


def judge_otherwise(largest, smallest, a, b, c, d, first, second):
    return largest > first, smallest > second, second, largest


def main() -> None:
    RULES["other"] = Rule({}, lambda options: None, judge_otherwise, (0.0, 0.0))
    recorder = Recorder()
    with patch.object(JITFunction, "run", lambda kernel, *args, **kwargs: recorder.launch(kernel, *args, **kwargs)):
        for storage in ("dense", "factored"):
            for dtype in ("float32", "bfloat16"):
                run_gate(storage=storage, memory_dtype=dtype, samples=5)
        run_gate(storage="factored", rank=2, samples=20)
        run_gate(rule="other")
    for capability in map(int, sys.argv[1:]):
        compiled = recorder.compile(capability)
    print(*sorted(compiled))
    named = {**vars(kernels), **vars(entry_kernels), **vars(layer_kernels)}
    launched = {name for name, value in named.items() if isinstance(value, JITFunction) and name[0] != "_"}
    sys.exit(f"never launched: {launched - compiled}" if launched - compiled else 0)


if __name__ == "__main__":
    main()
